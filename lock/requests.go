package lock

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/httplatch/httplatch/lock/internal/send"
)

// The calls to a store, as package send makes them. They are values, since a store
// that has not returned in time may still read them.
type (
	claimRequest struct {
		store Store
		key   string
		claim Claim
	}
	renewRequest  claimRequest
	settleRequest struct {
		releaseRequest
		receipt []byte
		keep    time.Duration
	}
	releaseRequest struct {
		store Store
		key   string
		token string
	}
	getRequest struct {
		store Store
		key   string
	}
)

func (r claimRequest) Send(ctx context.Context) (Entry, error) {
	return r.store.Claim(ctx, r.key, r.claim)
}

func (r renewRequest) Send(ctx context.Context) (bool, error) {
	return r.store.Renew(ctx, r.key, r.claim)
}

func (r settleRequest) Send(ctx context.Context) (bool, error) {
	return r.store.Settle(ctx, r.key, r.token, r.receipt, r.keep)
}

func (r releaseRequest) Send(ctx context.Context) (bool, error) {
	return r.store.Release(ctx, r.key, r.token)
}

func (r getRequest) Send(ctx context.Context) (Entry, error) { return r.store.Get(ctx, r.key) }

// ask makes one call to the store of c, in the place that call is. The error is the
// one that callers see.
func ask[T any, R send.Request[T]](ctx context.Context, c *core, call *send.Call, terms send.Terms, r R) (T, error) {
	if c.prompt {
		if terms.Lasting {
			ctx = lasting
		}
		value, err := r.Send(ctx)
		return value, publicError(err, false)
	}
	value, err := send.Do[T](ctx, c.sender, call, terms, r)
	return value, publicError(err, call.Unanswered())
}

// lasting is what a store in this process gets for a call that does not end with its
// caller's context: it looks for nothing else there.
var lasting = context.Background() //nolint:forbidigo // it is to have no end

// lastingTerms are those of a call that does not end with its caller's context.
func (l *Locker) lastingTerms() send.Terms {
	return send.Terms{Budget: l.cfg.budget, Lasting: true}
}

// publicError is the error of a call that its caller sees.
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

// verdictOf is what an error of a store means for the call.
func verdictOf(err error) send.Verdict {
	switch {
	case errors.Is(err, ErrDenied), errors.Is(err, errors.ErrUnsupported):
		return send.Final // an answer, and one that the same call would get again
	case errors.Is(err, ErrNotApplied):
		return send.NotApplied
	default:
		return send.Unknown
	}
}

// awayLease is a lease of a store that has to be waited for, with room for the two
// calls that nearly every lease makes: its claim and its end.
type awayLease struct {
	Lease
	calls [2]send.Call
}

// awayRun is awayLease for Once.
type awayRun struct {
	run
	calls [2]send.Call
}

// call returns the place for a call of the acquire, or of the end, of e: nil if the
// store needs none.
func (e *Lease) call() *send.Call {
	if e.locker.core.prompt {
		return nil
	}
	if e.called == len(e.calls) {
		return new(send.Call)
	}
	e.called++
	return &e.calls[e.called-1]
}
