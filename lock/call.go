package lock

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/httplatch/httplatch/lock/internal/send"
)

// call is one call to the store about a key, with its answer. It is sent once or more.
type call struct {
	name    string // callClaim, callRenew, callSettle or callRelease
	key     string
	claim   Claim
	receipt []byte
	keep    time.Duration

	entry Entry      // the answer to a claim
	ok    bool       // the answer to another call
	sent  *send.Call // what has become of its sends; nil for a store in this process
}

// send sends c once.
func (c *call) send(ctx context.Context, to Store) (err error) {
	defer send.Recover(&err)
	switch c.name {
	case callClaim:
		c.entry, err = to.Claim(ctx, c.key, c.claim)
	case callRenew:
		c.ok, err = to.Renew(ctx, c.key, c.claim)
	case callSettle:
		c.ok, err = to.Settle(ctx, c.key, c.claim, c.receipt, c.keep)
	default:
		c.ok, err = to.Release(ctx, c.key, c.claim)
	}
	return err
}

// remoteCall is a call to a store that outlives this process. A send may still use it after the call has
// returned.
type remoteCall struct {
	call

	sends send.Call
	store Store
}

// Send implements send.Request.
func (r *remoteCall) Send(ctx context.Context) error { return r.send(ctx, r.store) }

// call makes the call n to the store, and returns the error for callers. For a store in this process n stays
// on the stack of the caller.
func (c *core) call(ctx context.Context, terms send.Terms, n *call) error {
	if c.inProcess {
		return callHere(ctx, terms, func(ctx context.Context) error { return n.send(ctx, c.store) })
	}
	r := &remoteCall{call: *n, store: c.store}
	err := send.Do(ctx, c.sender, &r.sends, terms, r)
	n.entry, n.ok, n.sent = r.entry, r.ok, &r.sends
	return publicError(err, r.sends.Unanswered())
}

// call makes the call n, and logs its failure.
func (l *Locker) call(ctx context.Context, terms send.Terms, n *call) error {
	err := l.core.call(ctx, terms, n)
	if err != nil {
		l.logFailure(ctx, err)
	}
	return err
}

// callHere makes a call to a store in this process, which waits for nothing and is never silent.
func callHere(ctx context.Context, terms send.Terms, f func(ctx context.Context) error) error {
	if terms.Lasting {
		ctx = lasting
	}
	err := f(ctx)
	if err != nil && ctx.Err() != nil {
		err = send.GoneError{Cause: err}
	}
	return publicError(err, false)
}

// sendFunc is a request whose function keeps the answer itself.
type sendFunc func(ctx context.Context) error

func (f sendFunc) Send(ctx context.Context) error { return f(ctx) }

// request makes the request r to the store, and returns the error for callers. state follows its sends.
func (c *core) request(ctx context.Context, state *send.Call, terms send.Terms, r send.Request) error {
	if c.inProcess {
		return callHere(ctx, terms, func(ctx context.Context) (err error) {
			defer send.Recover(&err)
			return r.Send(ctx)
		})
	}
	err := send.Do(ctx, c.sender, state, terms, r)
	return publicError(err, state.Unanswered())
}

// request makes a request whose sends need no clean-up, and logs its failure.
func (l *Locker) request(ctx context.Context, terms send.Terms, r send.Request) error {
	err := l.core.request(ctx, new(send.Call), terms, r)
	if err != nil {
		l.logFailure(ctx, err)
	}
	return err
}

// read reads the entry of key.
func (l *Locker) read(ctx context.Context, terms send.Terms, key string) (entry Entry, err error) {
	err = l.request(ctx, terms, sendFunc(func(ctx context.Context) (err error) {
		entry, err = l.core.store.Get(ctx, key)
		return err
	}))
	return entry, err
}

// lastingTerms returns the terms of a call that does not end with its caller's context.
func (l *Locker) lastingTerms() send.Terms {
	return send.Terms{Budget: l.cfg.budget, Lasting: true}
}

// singleTerms returns the terms of a call that is sent once, and does not end with its caller's
// context.
func (l *Locker) singleTerms() send.Terms {
	terms := l.lastingTerms()
	terms.Once = true
	return terms
}

// lasting is the context of a call to a store in this process that does not end with its
// caller's context. Such a store reads no values from it.
var lasting = context.Background() //nolint:forbidigo // it is to have no end

// publicError returns the error of a call for its caller.
func publicError(err error, unanswered bool) error {
	switch {
	case err == nil:
		return nil
	case unanswered:
		return fmt.Errorf("%w: %w", ErrUnknown, err)
	case errors.Is(err, ErrUnavailable), errors.Is(err, errors.ErrUnsupported):
		return err
	default:
		return fmt.Errorf("%w: %w", ErrUnavailable, err)
	}
}
