package lock

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/httplatch/httplatch/lock/internal/send"
)

// call is one call to the store, with its answer. It is sent once or more.
type call struct {
	name    string // callClaim, callRenew, callSettle or callRelease, about a key; "" for do
	key     string
	claim   Claim
	receipt []byte
	keep    time.Duration
	do      func(ctx context.Context) error // another call, which keeps its answer itself
	quiet   bool                            // its caller logs the failure

	store Store
	entry Entry     // the answer to a claim
	ok    bool      // the answer to another call about a key
	sent  send.Sent // none for a store in this process
}

// Send implements send.Request.
func (c *call) Send(ctx context.Context) (err error) {
	defer send.Recover(&err)
	switch c.name {
	case callClaim:
		c.entry, err = c.store.Claim(ctx, c.key, c.claim)
	case callRenew:
		c.ok, err = c.store.Renew(ctx, c.key, c.claim)
	case callSettle:
		c.ok, err = c.store.Settle(ctx, c.key, c.claim, c.receipt, c.keep)
	case callRelease:
		c.ok, err = c.store.Release(ctx, c.key, c.claim)
	default:
		err = c.do(ctx)
	}
	return err
}

// calls are for later calls to a store that outlives this process. A store may use the context of a call after it,
// and nothing else.
var calls = sync.Pool{New: func() any { return new(call) }}

// call makes the call n to the store, and returns the error for callers. A store in this process waits for
// nothing and is never silent, and n stays on the stack of the caller.
func (l *Locker) call(ctx context.Context, terms send.Terms, n *call) (err error) {
	c := l.core
	n.store = c.store
	if !c.inProcess {
		r, sends := calls.Get().(*call), new(send.Call) //nolint:errcheck,forcetypeassert // nothing else is in it
		*r = *n
		err = send.Do(ctx, c.sender, sends, terms, r)
		n.entry, n.ok, n.sent = r.entry, r.ok, sends.Sent
		*r = call{}
		calls.Put(r)
	} else {
		if terms.Lasting {
			ctx = context.Background() //nolint:forbidigo // it is to have no end, and such a store reads no values
		}
		if err = n.Send(ctx); err != nil && ctx.Err() != nil {
			err = send.GoneError{Cause: err}
		}
	}
	if err == nil {
		return nil
	}
	if err = publicError(err, n.sent.Unanswered); !n.quiet {
		l.logFailure(ctx, err)
	}
	return err
}

func (l *Locker) read(ctx context.Context, key string, lasting bool) (entry Entry, err error) {
	err = l.call(ctx, send.Terms{Budget: l.cfg.budget, Lasting: lasting}, &call{do: func(ctx context.Context) (err error) {
		entry, err = l.core.store.Get(ctx, key)
		return err
	}})
	return entry, err
}

// publicError returns the error of a call for its caller.
func publicError(err error, unanswered bool) error {
	switch {
	case unanswered:
		return fmt.Errorf("%w: %w", ErrUnknown, err)
	case errors.Is(err, ErrUnavailable), errors.Is(err, errors.ErrUnsupported):
		return err
	default:
		return fmt.Errorf("%w: %w", ErrUnavailable, err)
	}
}
