package middleware

import (
	"cmp"
	"context"
	"errors"
	"net/http"
	"reflect"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/httplatch/httplatch/internal/cancelctx"
	"github.com/httplatch/httplatch/internal/guardkey"
	"github.com/httplatch/httplatch/internal/submission"
	"github.com/httplatch/httplatch/lock"
	"github.com/httplatch/httplatch/middleware/internal/record"
)

// request is one request behind a guard, and behind a Lock the context of its handler. Behind Idempotent or Dedupe,
// it is a part of a [run], which is the context. The guard needs a copy of the http.Request: a key function that
// reads the body replaces it, and the caller's must not change.
type request struct {
	context.Context //nolint:containedctx // it is one: of the lease, nil before the claim

	guard *guard
	outer *request     // the same request behind the guard further out, nil if there is none
	run   *run         // that this is a part of, from the claim on; nil behind Lock, and in a handler that runs unprotected
	own   http.Request // the guard's copy, which the handler gets
	keys  []string     // of the lease, or of the record
	key   [1]string    // has room for keys

	marks    record.Marks
	unknown  atomic.Bool // a service called through Upstream may still be working
	returned atomic.Bool // the handler has returned, and its context may not be used any more
}

type requestKey struct{}

// requestOf returns the request of ctx behind its innermost guard, nil if there is none.
func requestOf(ctx context.Context) *request {
	x, _ := ctx.Value(requestKey{}).(*request)
	return x
}

// runOf returns the innermost run that ctx belongs to, nil if there is none.
func runOf(ctx context.Context) *run {
	for x := requestOf(ctx); x != nil; x = x.outer {
		if x.run != nil {
			return x.run
		}
	}
	return nil
}

// heldOutside reports whether a guard of the same kind further out has this key of the same store. A request that was
// served, or whose context has ended, does not count.
func (x *request) heldOutside(key string) bool {
	store := x.guard.locker.Store()
	for o := x.outer; o != nil; o = o.outer {
		var ctx context.Context = o
		if o.run != nil {
			ctx = o.run
		}
		if o.guard.once == x.guard.once && slices.Contains(o.keys, key) && !o.returned.Load() && ctx.Err() == nil &&
			reflect.ValueOf(store).Comparable() && o.guard.locker.Store() == store {
			return true
		}
	}
	return false
}

// handBack copies from own, the guard's request, to r, its caller's, the files of a multipart form, because net/http
// removes only the files of r, and the pattern of a router inside, for an access log outside.
func handBack(r, own *http.Request) {
	if r.MultipartForm == nil {
		r.MultipartForm = own.MultipartForm
	}
	if r.Pattern != own.Pattern {
		r.Pattern = own.Pattern
	}
}

// serveUnprotected runs next without a lease. For handlers its context is no guard's. Guards further in find x.
func (x *request) serveUnprotected(w http.ResponseWriter, next http.Handler) {
	defer x.returned.Store(true)
	x.Context = context.WithoutCancel(x.own.Context())
	x.own = *x.own.WithContext(context.WithValue(x.own.Context(), guardkey.Outer{}, x)) // no handler has seen it yet
	next.ServeHTTP(w, &x.own)
}

// markCutOff notes that the end of a streamed answer does not show whether it is whole. x may be nil.
func (x *request) markCutOff() {
	for ; x != nil; x = x.outer {
		x.marks.CutOff.Store(true)
	}
}

func (x *request) Value(key any) any { return x.value(x.Context, key) }

// value returns the value of the handler's context for key. from has the values that are not the guard's.
func (x *request) value(from context.Context, key any) any {
	switch key.(type) {
	case requestKey, guardkey.Outer:
		return x
	}
	value := from.Value(key)
	if x.returned.Load() {
		x.guard.hints.valueAfterReturn(x.Context, key, value)
	}
	return value
}

// String keeps code that prints a context, as mocks do with their arguments, from reading a guard in use.
func (x *request) String() string { return "middleware.Context" }

// run is a request behind Idempotent or Dedupe, the context of its handler and the record of its answer, in one
// allocation. The context ends with the lease. After the answer has become a stream that is not recorded, it ends with
// the client's request instead: the lease is over. While a stream is recorded, it ends with the last of both.
type run struct {
	request
	*lock.Run // nil unless the handler runs under a lease

	next       http.Handler
	in         *http.Request // to answer: the guard's own request, or after discard another copy
	out        http.ResponseWriter
	named      submission.Submission // for the keys of the handler's calls
	cookie     string                // see formCookie
	awaited    []byte                // the id of a JSON-RPC call, to which a response belongs; nil: there is none
	remembered time.Duration         // how long the key of the answer is remembered, 0 if it is not known
	answer     record.Answer

	client context.Context //nolint:containedctx // of the client's request

	// A context with its own end costs more than all the rest, so it is made when a handler asks for the end.
	end  atomic.Pointer[cancelctx.Context]
	mu   sync.Mutex
	stop func() bool // ends the link from the followed context to end
	both bool        // see Hold
}

// discard drops the handler's answer. Another one is written with a copy of the handler's request that has the
// context of the client's: the run has ended, and a goroutine of the handler may still read the handler's.
func (x *run) discard() {
	x.answer.Discard()
	x.in = x.in.WithContext(x.client)
}

// AddHeaders implements record.Run.
func (x *run) AddHeaders(h http.Header) {
	if x.cookie != "" {
		h["Set-Cookie"] = append(slices.Clip(h["Set-Cookie"]), x.cookie)
	}
	if seconds := int64(x.remembered / time.Second); seconds > 0 && x.guard.saysLifetime { // rounded down
		h[record.LifetimeHeader] = []string{strconv.FormatInt(seconds, 10)}
	}
}

// Settle implements record.Run. A store that does not answer is no error: the claim stays, its lease is renewed, and
// it is settled in the background.
func (x *run) Settle(receipt []byte) error {
	if x.Err() == nil { // the lease may be lost, and its run settled all the same
		x.follow(x.client) // a settle ends the lease, and must not end the handler's context
	}
	_, replayed, err := x.Run.Settle(x.request.Context, receipt)
	if replayed || errors.Is(err, lock.ErrLost) {
		x.follow(x.request.Context)
		return cmp.Or(err, lock.ErrLost)
	}
	return nil
}

// Hold implements record.Run. A handler that streams goes on until its lease is over or its client has gone,
// whichever comes last: a stream may be longer than a lease is renewed, and its key is not taken over. But if the
// entry was removed or the Locker closed, its context ends with the lease.
func (x *run) Hold(tombstone []byte) (held bool, err error) {
	err = x.Run.Hold(x.request.Context, tombstone)
	if errors.Is(err, lock.ErrLost) {
		return false, err
	}
	if held = err == nil; held {
		x.mu.Lock()
		x.both = true
		x.mu.Unlock()
		x.follow(x.request.Context)
	}
	return held, nil
}

// follow makes x end when parent does, in place of the context that it has followed before.
func (x *run) follow(parent context.Context) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.followLocked(parent)
}

func (x *run) followLocked(parent context.Context) {
	lease, end := x.request.Context, x.end.Load()
	if end == nil {
		end = cancelctx.New(context.WithoutCancel(lease))
		x.end.Store(end)
	}
	if x.stop != nil {
		x.stop()
	}
	if cause := context.Cause(parent); x.both && parent == lease && errors.Is(cause, lock.ErrLost) && lock.Class(cause) != "taken" {
		parent = x.client
	}
	if parent.Err() != nil {
		end.Cancel(context.Cause(parent)) // now, and not on the goroutine of an AfterFunc
		return
	}
	x.stop = context.AfterFunc(parent, func() { x.follow(parent) })
}

func (x *run) Done() <-chan struct{} {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.end.Load() == nil {
		x.followLocked(x.request.Context)
	}
	return x.end.Load().Done()
}

func (x *run) Err() error {
	if end := x.end.Load(); end != nil {
		return end.Err()
	}
	return x.request.Err()
}

func (x *run) Value(key any) any {
	if _, ok := key.(submission.ContextKey); ok {
		return &x.named
	}
	if end := x.end.Load(); end != nil {
		return x.value(end.Context, key)
	}
	return x.value(x.request.Context, key)
}
