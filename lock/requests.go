package lock

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/httplatch/httplatch/lock/internal/send"
)

// The requests of package send to a store, with their answers.
type (
	claimRequest struct {
		store Store
		key   string
		claim Claim
		entry Entry
	}
	renewRequest struct {
		store Store
		key   string
		claim Claim
		ok    bool
	}
	// endRequest is a release, with keep a settle, and with ReplacesHeld the return of a takeover.
	endRequest struct {
		store   Store
		key     string
		claim   Claim
		receipt []byte
		keep    time.Duration
		ok      bool
	}
)

// sendFunc is a request whose function keeps the answer itself.
type sendFunc func(ctx context.Context) error

func (f sendFunc) Send(ctx context.Context) error { return f(ctx) }

func (r *claimRequest) Send(ctx context.Context) (err error) {
	r.entry, err = r.store.Claim(ctx, r.key, r.claim)
	return err
}

func (r *renewRequest) Send(ctx context.Context) (err error) {
	r.ok, err = r.store.Renew(ctx, r.key, r.claim)
	return err
}

// Send recovers from panics by itself: an end is also sent without [sendDirect], which would have it
// on the heap.
func (r *endRequest) Send(ctx context.Context) (err error) {
	defer send.Recover(&err)
	switch {
	case r.keep > 0:
		r.ok, err = r.store.Settle(ctx, r.key, r.claim, r.receipt, r.keep)
	case r.claim.ReplacesHeld:
		_, err = r.store.Claim(ctx, r.key, r.claim)
	default:
		r.ok, err = r.store.Release(ctx, r.key, r.claim)
	}
	return err
}

// backend makes the calls to a store.
type backend struct {
	store     Store
	inProcess bool // its calls wait for nothing
	sender    *send.Sender
}

// ask makes the call r to the store, and returns the error for callers.
func (b *backend) ask(ctx context.Context, call *send.Call, terms send.Terms, r send.Request) error {
	if !b.inProcess {
		err := send.Do(ctx, b.sender, call, terms, r)
		return publicError(err, call.Unanswered())
	}
	if terms.Lasting {
		ctx = lasting
	}
	err := sendDirect(ctx, r)
	if err != nil && ctx.Err() != nil {
		err = send.GoneError{Cause: err} // a store in this process is never silent
	}
	return publicError(err, false)
}

// sendDirect makes a call to a store in this process. A panic fails the call.
func sendDirect(ctx context.Context, r send.Request) (err error) {
	defer send.Recover(&err)
	return r.Send(ctx)
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

// verdictOf returns the meaning of a store's error for its call.
func verdictOf(err error) send.Verdict {
	switch {
	case errors.Is(err, ErrDenied), errors.Is(err, errors.ErrUnsupported):
		return send.Final // the same call would get this answer again
	case errors.Is(err, ErrNotApplied):
		return send.NotApplied
	default:
		return send.Unknown
	}
}
