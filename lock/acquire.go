package lock

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"time"

	"github.com/httplatch/httplatch/internal/requestinfo"
	"github.com/httplatch/httplatch/lock/internal/clock"
	"github.com/httplatch/httplatch/lock/internal/local"
	"github.com/httplatch/httplatch/lock/internal/send"
)

// Do runs fn while this Locker holds key, and releases the key when fn
// returns, panics or exits its goroutine.
//
// fn did not run if Do returns a [*RefusedError], or an error that matches
// [ErrUnavailable] or [ErrClosed], unless fn itself has returned it. If the lease is lost while fn runs, fn's
// context ends with a cause that matches [ErrLost], and Do returns fn's error
// joined with it. A release that the store does not answer is completed in the
// background and is no error.
func (l *Locker) Do(ctx context.Context, key string, fn func(ctx context.Context) error) (err error) {
	lease, err := l.Acquire(ctx, key)
	if err != nil {
		return err
	}
	defer releaseAfter(ctx, lease.Release, &err)
	return fn(lease.Context())
}

// releaseAfter releases a lease or a set after work that has returned err, and joins to it the
// error of a lease that was lost.
func releaseAfter(ctx context.Context, release func(context.Context) error, err *error) {
	if end := release(ctx); errors.Is(end, ErrLost) {
		*err = errors.Join(*err, end)
	}
}

// Acquire takes key, for work that ends in another function; prefer [Locker.Do].
// The lease is renewed until Release or Settle is called on it, at most for
// WithMaxHold.
//
// It returns one of these errors:
//
//   - A [*RefusedError] if another caller has the key.
//   - An error that matches [ErrUnavailable] if the store did not serve the claim within the
//     budget, unless [WithFailOpen] is set. It matches [ErrUnknown] too if the claim may have been
//     applied: the claim is then cleaned up in the background.
//   - An error that matches [ErrClosed] after Close.
//   - An error that matches the cause of ctx if ctx ends first.
//
// When ctx ends while Acquire waits for its turn, Acquire returns at once. When ctx ends while a
// claim is in flight, Acquire returns with the answer, or after a third of the budget. If that
// answer grants the key, Acquire returns the lease, and the context of the lease has ended.
func (l *Locker) Acquire(ctx context.Context, key string) (*Lease, error) {
	if err := validKey(key, false); err != nil {
		return nil, err
	}
	e := new(Lease).init(ctx, l, key)
	if err := l.acquire(ctx, e, acquireTerms{wait: l.cfg.wait}); err != nil {
		return nil, err
	}
	return e, nil
}

// init makes e a lease that is not claimed yet, for work in ctx.
func (e *Lease) init(ctx context.Context, l *Locker, entry string) *Lease {
	e.locker, e.entry, e.owner, e.parent = l, entry, l.core.owner, ctx
	l.core.keys.Prepare(&e.local, (*localLease)(e), entry)
	if len(l.cfg.observers) > 0 {
		e.observed = &observation{began: time.Now()}
	}
	if l.cfg.origin != nil {
		if origin := l.originOf(ctx); origin != "" {
			e.owner += " " + strings.ReplaceAll(origin, string(requestinfo.Mark), " ")
		}
	}
	if !l.core.inProcess {
		e.outer = runOf(ctx)
	}
	return e
}

func (l *Locker) originOf(ctx context.Context) (origin string) {
	defer l.logPanic(ctx, "lock: the function of WithOrigin panicked", EventClaimed)
	return l.cfg.origin(ctx)
}

// acquire takes e's key, or returns the reason for the refusal. After a grant, e is a running lease, protected
// or not, and counts among the active leases. After a refusal, the clean-up removes what the claim may have left.
func (l *Locker) acquire(ctx context.Context, e *Lease, terms acquireTerms) (err error) {
	switch {
	case ctx.Err() != nil:
		return fmt.Errorf("lock: not acquired: %w", context.Cause(ctx))
	case !l.core.active.Enter():
		return ErrClosed
	}
	began := clock.Now()
	if terms.resume != nil {
		err = terms.resume(began)
	} else if err = l.take(ctx, e, began, terms); err != nil && !terms.refused && l.failsOpen(ctx, err) {
		err = l.bypass(ctx, e, began, err)
	}
	if err == nil && l.core.closing.Err() != nil {
		err = ErrClosed // Close may have listed the leases before this one was granted
	}
	if err == nil {
		return nil
	}
	e.discard(ctx, err) // before observers are called: other callers wait for the key
	if !terms.oneOf || !isRefusal(err) {
		l.reportRefusal(ctx, e, began, err)
	}
	return err
}

func isRefusal(err error) bool {
	_, is := errors.AsType[*RefusedError](err)
	return is
}

// reportRefusal reports an acquire that began at began and ended with err, to observers and the
// log.
func (l *Locker) reportRefusal(ctx context.Context, e *Lease, began clock.Moment, err error) {
	kind := EventRefused
	switch {
	case errors.Is(err, errReplay):
		kind = EventReplayed
	case errors.Is(err, ErrUnknown):
		kind = EventUnknown
	case errors.Is(err, ErrUnavailable):
		kind = EventUnavailable
	}
	l.emit(ctx, e, kind, began.Since(), err)
	if refused, is := errors.AsType[*RefusedError](err); is && e.run != nil && errors.Is(err, ErrAbandoned) {
		l.warn(ctx, e, warnAbandoned.ofKey(e), slog.String("owner", requestinfo.Process(refused.Entry.Owner)))
	}
}

// bypass makes e a lease that protects nothing, after its claim ended with err. The claim
// may have been applied, so it counts as granted while the work runs: to remove it would let
// another process in as well. The local table still refuses duplicates in this process. After
// the length of a lease, the claim is removed and duplicates are let in, so that work that hangs
// does not keep other callers out.
func (l *Locker) bypass(ctx context.Context, e *Lease, began clock.Moment, err error) error {
	if owner, is := e.local.Resumed(); is {
		return heldBy(e, owner) // the store does not answer, but this process has the key, by a ticket
	}
	l.reportRefusal(ctx, e, began, err)
	if l.cfg.detached {
		e.parent = context.WithoutCancel(e.parent)
	}
	e.local.Bypass(func() local.Decision { return grantOf(e) })
	e.validity.Bypass(&e.local, clock.Now().Add(l.cfg.lease))
	l.emit(ctx, e, EventBypassed, 0, err)
	l.warn(ctx, e, warnBypassed, slog.Any("error", err))
	return nil
}

type acquireTerms struct {
	wait    time.Duration // how long to wait for a holder
	outage  error         // set if the store did not serve an earlier key of this call: it is not asked for the next ones
	refused bool          // refused before, so the work does not run unprotected
	oneOf   bool          // the caller takes any of several keys, so a refusal of one is not reported

	resume func(began clock.Moment) error // takes the key by a ticket, past other callers; nil without one
}

// failsOpen reports whether the work of an acquire that ended with err may run unprotected. It
// may, if the store did not serve the acquire. errors.ErrUnsupported is an answer of the store,
// and a caller that has left needs no work.
func (l *Locker) failsOpen(ctx context.Context, err error) bool {
	return l.cfg.failOpen && errors.Is(err, ErrUnavailable) && !errors.Is(err, errors.ErrUnsupported) && send.Gone(ctx) == nil
}
