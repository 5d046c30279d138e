package middleware

import (
	"cmp"
	"context"
	"errors"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/httplatch/httplatch/internal/cancelctx"
	"github.com/httplatch/httplatch/internal/submission"
	"github.com/httplatch/httplatch/lock"
	"github.com/httplatch/httplatch/middleware/internal/fingerprint"
	"github.com/httplatch/httplatch/middleware/internal/recorder"
)

// run is one request to Idempotent or Dedupe, and the run of its handler if it has one.
type run struct {
	*lock.Run // nil unless the handler runs under a lease

	guard      *guardCore
	next       http.Handler
	out        http.ResponseWriter
	request    *http.Request // the guard's own copy
	id         string        // of the record
	print      fingerprint.Sum
	submission lock.Submission
	report     *formReport
	lifetime   lifetime

	outer   *run                  // of a guard further out
	named   submission.Submission // for the keys of the handler's calls
	context runContext
	answer  recorder.Answer
}

type runKey struct{}

// runOf returns the innermost run that ctx belongs to, nil if there is none.
func runOf(ctx context.Context) *run {
	x, _ := ctx.Value(runKey{}).(*run)
	return x
}

// newRun returns the run of r with a copy of r, in one allocation. A key function that reads the body
// replaces it, and the caller's request must not change. The handler gets the copy.
func newRun(g *guardCore, w http.ResponseWriter, r *http.Request, next http.Handler) *run {
	own := new(struct {
		run
		request http.Request
	})
	own.request = *r
	x := &own.run
	x.guard, x.next, x.out, x.request = g, next, w, &own.request
	return x
}

// within reports whether x, or a run around it, has the record id of store.
func (x *run) within(id string, store lock.Store) bool {
	for ; x != nil; x = x.outer {
		if x.id == id && x.context.Err() == nil && sameStore(x.guard.locker.Store(), store) {
			return true
		}
	}
	return false
}

// failure is the end of a run whose answer was not recorded, for requests that have waited
// for it.
type failure struct {
	status int
	record []byte // nil if the answer cannot be replayed
}

func (*failure) Error() string { return "middleware: the first request failed" }

// failure returns a copy of an answer that is not kept, for the requests that have waited for it. Without
// it, each of them would do the same work and fail. It is nil for an answer that depends on the
// caller: the next caller may be signed in.
func (x *run) failure() error {
	if recorder.OfCaller(x.answer.Code()) {
		return nil
	}
	return &failure{x.answer.Code(), x.answer.Copy()}
}

// discard drops the handler's answer, and returns the request with which to write another answer:
// a copy of the handler's request with the context of r, the caller's request. The context of the run has
// ended, and a goroutine of the handler may still read the handler's request.
func (x *run) discard(r *http.Request) *http.Request {
	x.answer.Discard()
	x.request = x.request.WithContext(r.Context())
	return x.request
}

// addHeaders adds the guard's own headers to an answer that is kept.
func (x *run) addHeaders(h http.Header) {
	x.report.add(h)
	x.lifetime.add(h)
}

// Settle implements recorder.Run: it records receipt as the outcome while the handler still runs. A store
// that does not answer is no error: the claim stays, its lease is renewed, and it is settled in the
// background.
func (x *run) Settle(receipt []byte, header http.Header) error {
	x.context.followClient() // a settle ends the lease, and must not end the handler's context
	_, replayed, err := x.Run.Settle(x.context.lease, receipt)
	if replayed || errors.Is(err, lock.ErrLost) {
		x.context.followAgain()
		return cmp.Or(err, lock.ErrLost)
	}
	if header != nil {
		x.addHeaders(header)
	}
	return nil
}

// Hold implements recorder.Run: it keeps the key, because a streamed answer begins to be sent. A handler
// that streams goes on until its lease is over or its client has gone, whichever comes last.
func (x *run) Hold(tombstone []byte, header http.Header) (held bool, err error) {
	err = x.Run.Hold(x.context.lease, tombstone)
	if errors.Is(err, lock.ErrLost) {
		return false, err
	}
	if held = err == nil; held {
		x.context.followBoth()
		x.addHeaders(header)
	}
	return held, nil
}

// runContext is the context of a handler whose answer is recorded. It ends with the lease. After
// the answer has become a stream that is not recorded, it ends with the client's request instead: by
// then the outcome is recorded and the lease over, and a stream of events ends when its client goes
// away.
type runContext struct {
	lease  context.Context //nolint:containedctx // followed first
	client context.Context //nolint:containedctx // followed then
	run    *run

	// A context with its own end costs more than all the rest, and few handlers ask for the
	// end, so it is made when a handler asks.
	own  atomic.Pointer[cancelctx.Context]
	mu   sync.Mutex
	stop func() bool // ends the link from the parent to own
	both bool        // followBoth was called

	returned atomic.Bool // the guard has returned
}

func (c *runContext) init(lease, client context.Context, x *run) {
	c.run, c.lease, c.client = x, lease, client
}

// followClient makes c end with the client's request, unless c has ended: the lease may be lost, and its
// run settled all the same.
func (c *runContext) followClient() {
	if c.Err() == nil {
		c.follow(c.client)
	}
}

// followAgain undoes followClient after a settle that found the lease lost.
func (c *runContext) followAgain() {
	if c.both {
		c.followBoth()
	} else {
		c.follow(c.lease)
	}
}

// followBoth makes c end with the lease or with the client's request, whichever comes last. A stream
// may be longer than a lease is renewed, and its key is not taken over. But if the entry was
// removed or the Locker closed, c ends with the lease.
func (c *runContext) followBoth() {
	c.mu.Lock()
	defer c.mu.Unlock()
	own := c.ownLocked()
	c.both = true
	c.stop = context.AfterFunc(c.lease, func() {
		if cause := context.Cause(c.lease); errors.Is(cause, lock.ErrLost) && lock.Class(cause) != "taken" {
			c.followClient()
			return
		}
		own.Cancel(context.Cause(c.lease))
	})
}

// end ends c, as net/http ends the context of a request that was served.
func (c *runContext) end() {
	c.returned.Store(true)
	if own := c.own.Load(); own != nil {
		c.mu.Lock()
		c.stop()
		c.mu.Unlock()
		own.Cancel(nil)
	}
}

func (c *runContext) follow(parent context.Context) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.followLocked(parent)
}

// begin returns a context that can be cancelled. It ends with the lease, unless the answer was
// streamed in the meantime.
func (c *runContext) begin() *cancelctx.Context {
	c.mu.Lock()
	defer c.mu.Unlock()
	if own := c.own.Load(); own != nil {
		return own
	}
	return c.followLocked(c.lease)
}

func (c *runContext) followLocked(parent context.Context) *cancelctx.Context {
	own := c.ownLocked()
	c.stop = context.AfterFunc(parent, func() { own.Cancel(context.Cause(parent)) })
	if parent.Err() != nil {
		own.Cancel(context.Cause(parent)) // now, and not on the goroutine that AfterFunc started
	}
	return own
}

// ownLocked returns the own context, which ends with nothing yet.
func (c *runContext) ownLocked() *cancelctx.Context {
	own := c.own.Load()
	if own == nil {
		own = cancelctx.New(context.WithoutCancel(c.lease))
		c.own.Store(own)
	} else {
		c.stop()
	}
	return own
}

// Deadline returns none: neither a lease nor a client's presence has one.
func (c *runContext) Deadline() (deadline time.Time, ok bool) { return time.Time{}, false }

func (c *runContext) Done() <-chan struct{} {
	own := c.own.Load()
	if own == nil {
		own = c.begin()
	}
	return own.Done()
}

func (c *runContext) Err() error { return c.current().Err() }

func (c *runContext) Value(key any) any {
	switch key.(type) {
	case runKey:
		return c.run
	case submission.ContextKey:
		return &c.run.named
	}
	value := c.current().Value(key)
	if c.returned.Load() {
		c.run.guard.hints.ValueAfterReturn(c.lease, key, value)
	}
	return value
}

func (c *runContext) current() context.Context {
	if own := c.own.Load(); own != nil {
		return own.Context
	}
	return c.lease
}

// String is for code that prints a context, as mocks do with their arguments. Without it, such
// code would read fields that are in use.
func (*runContext) String() string { return "middleware.Idempotent.Context" }
