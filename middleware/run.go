package middleware

import (
	"cmp"
	"context"
	"errors"
	"net/http"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/httplatch/httplatch/internal/cancelctx"
	"github.com/httplatch/httplatch/internal/submission"
	"github.com/httplatch/httplatch/lock"
	"github.com/httplatch/httplatch/middleware/internal/identity"
	"github.com/httplatch/httplatch/middleware/internal/record"
)

// run is one request behind Idempotent or Dedupe, and the run of its handler if it has one: the context
// of the handler and the record of its answer, in one allocation.
//
// The context ends with the lease. After the answer has become a stream that is not recorded, it ends with
// the client's request instead: by then the outcome is recorded and the lease over, and a stream of events
// ends when its client goes away. While a stream is recorded, it ends with the last of both.
type run struct {
	guarded
	*lock.Run // nil unless the handler runs under a lease

	next       http.Handler
	out        http.ResponseWriter
	own        *http.Request // to answer with: the guard's own request, or after discard another copy
	print      identity.Fingerprint
	compared   []byte // what every repeat must have, too; nil for Dedupe, whose key is the print
	submission lock.Submission
	named      submission.Submission // for the keys of the handler's calls
	cookie     string                // see formCookie
	remembered time.Duration         // how long the key of the answer is remembered, 0 if it is not known
	answer     record.Answer
	awaited    []byte // the id of a JSON-RPC call, to which a response belongs; nil: there is none

	client context.Context //nolint:containedctx // of the client's request

	// A context with its own end costs more than all the rest, and few handlers ask for the
	// end, so it is made when a handler asks.
	end  atomic.Pointer[cancelctx.Context]
	mu   sync.Mutex
	stop func() bool // ends the link from the followed context to end
	both bool        // see Hold
}

// failure is the end of a run whose answer was not recorded.
type failure struct {
	record []byte // of its answer; nil if that cannot be replayed
}

func (*failure) Error() string { return "middleware: the first request failed" }

// discard drops the handler's answer. Another answer is written with a copy of the handler's request that
// has the context of r, the caller's request: the context of the run has ended, and a goroutine of the
// handler may still read the handler's request.
func (x *run) discard(r *http.Request) {
	x.answer.Discard()
	x.own = x.own.WithContext(r.Context())
}

// AddHeaders implements record.Run: it adds the guard's own headers to a final answer. They are not recorded.
func (x *run) AddHeaders(h http.Header) {
	if x.cookie != "" {
		h["Set-Cookie"] = append(slices.Clip(h["Set-Cookie"]), x.cookie)
	}
	if seconds := int64(x.remembered / time.Second); seconds > 0 && x.submission.AskLeft { // rounded down
		h[record.LifetimeHeader] = []string{strconv.FormatInt(seconds, 10)}
	}
}

// Settle implements record.Run: it records receipt as the outcome while the handler still runs. A store
// that does not answer is no error: the claim stays, its lease is renewed, and it is settled in the
// background.
func (x *run) Settle(receipt []byte) error {
	if x.Err() == nil { // the lease may be lost, and its run settled all the same
		x.follow(x.client) // a settle ends the lease, and must not end the handler's context
	}
	_, replayed, err := x.Run.Settle(x.guarded.Context, receipt)
	if replayed || errors.Is(err, lock.ErrLost) {
		x.follow(x.guarded.Context)
		return cmp.Or(err, lock.ErrLost)
	}
	return nil
}

// Hold implements record.Run: it keeps the key, because a streamed answer begins to be sent. A handler
// that streams goes on until its lease is over or its client has gone, whichever comes last: a stream
// may be longer than a lease is renewed, and its key is not taken over. But if the entry was
// removed or the Locker closed, its context ends with the lease.
func (x *run) Hold(tombstone []byte) (held bool, err error) {
	err = x.Run.Hold(x.guarded.Context, tombstone)
	if errors.Is(err, lock.ErrLost) {
		return false, err
	}
	if held = err == nil; held {
		x.mu.Lock()
		x.both = true
		x.mu.Unlock()
		x.follow(x.guarded.Context)
	}
	return held, nil
}

// finish ends the context, as net/http ends the context of a request that was served.
func (x *run) finish() {
	x.returned.Store(true)
	if end := x.end.Load(); end != nil {
		x.mu.Lock()
		defer x.mu.Unlock()
		if x.stop != nil {
			x.stop()
		}
		end.Cancel(nil)
	}
}

// follow makes x end when parent does, in place of the context that it has followed before.
func (x *run) follow(parent context.Context) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.followLocked(parent)
}

func (x *run) followLocked(parent context.Context) {
	lease, end := x.guarded.Context, x.end.Load()
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
		x.followLocked(x.guarded.Context)
	}
	return x.end.Load().Done()
}

func (x *run) Err() error {
	if end := x.end.Load(); end != nil {
		return end.Err()
	}
	return x.guarded.Err()
}

func (x *run) Value(key any) any {
	if _, ok := key.(submission.ContextKey); ok {
		return &x.named
	}
	if end := x.end.Load(); end != nil {
		return x.value(end.Context, key)
	}
	return x.value(x.guarded.Context, key)
}
