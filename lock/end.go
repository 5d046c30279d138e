package lock

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"time"

	"github.com/httplatch/httplatch/lock/internal/clock"
	"github.com/httplatch/httplatch/lock/internal/duty"
	"github.com/httplatch/httplatch/lock/internal/local"
	"github.com/httplatch/httplatch/lock/internal/send"
)

// Release frees the key. It does so even if ctx has ended, and takes at most
// the budget. The second call, and one after [Lease.Settle], do nothing and
// return nil.
//
// An error that matches [ErrLost] says that the lease had ended before: its work may have
// overlapped with another holder's work. An error that matches [ErrUnavailable] says that the
// store gave no answer. The release is then completed in the background.
func (e *Lease) Release(ctx context.Context) error {
	if e == nil {
		return nil
	}
	return e.endWith(ctx, leaseEnd{})
}

// Settle ends the lease and leaves receipt in its place for keep: until then
// the key is refused with [ErrSettled]. A nil receipt is a cool-down. It does
// so even if ctx has ended, and takes at most the budget, twice that if the store has no
// room for receipt. It has the errors of [Lease.Release]. Without an answer, the settle is
// completed in the background, with the lease renewed meanwhile, and no caller of this process
// gets the key. If the store has no room for receipt, Settle leaves an empty one for keep, and
// returns an error that matches [ErrFull].
// After work that ran unprotected ([WithFailOpen]) it leaves no receipt, and returns an error
// that matches ErrUnavailable. Over a store that keeps only empty receipts
// ([Description].NoReceipts), Settle returns an error that matches errors.ErrUnsupported for
// any other receipt, and the lease goes on. Settle panics if keep is not positive.
func (e *Lease) Settle(ctx context.Context, receipt []byte, keep time.Duration) error {
	positive("Settle: keep", keep)
	if e == nil {
		return fmt.Errorf("%w: there is none", ErrLost)
	}
	if why := e.locker.core.about.NoReceipts; why != nil && len(receipt) > 0 {
		return why
	}
	return e.endWith(ctx, leaseEnd{settles: true, receipt: receipt, keep: keep})
}

// endWith ends the lease. Only the first call has an effect: a release after a settle that may
// have been applied would lose the receipt. It goes on when ctx ends: the key must be freed even if
// the client of the request has gone.
func (e *Lease) endWith(ctx context.Context, end leaseEnd) error {
	lost, first := e.validity.End(end.settles)
	switch {
	case !first:
		return nil
	case !e.local.Unprotected():
		return e.endInStore(ctx, end, lost)
	}
	e.close(true)
	if end.settles {
		return errBypassed
	}
	return nil
}

// endInStore ends the lease in the store, in the background if the store does not answer. lost is
// the loss of the lease, nil if there was none.
//
// After a release without an answer, the entry is a [duty.Orphan], and its removal goes on. The key is free
// in this process: the next caller removes the entry, if it is still there. After a settle without an
// answer, the lease keeps its key. The settle is repeated in the background until it is answered or the lease is over,
// and a settle of Once for as long as its entry is kept. Until then other callers of this process do not get the key,
// and each of them triggers an immediate repeat.
func (e *Lease) endInStore(ctx context.Context, end leaseEnd, lost error) error {
	l := e.locker
	if !l.core.inProcess {
		end.began = time.Duration(clock.Now() - e.claim.grantedAt)
		end.receipt = slices.Clone(end.receipt) // a send that has not returned in time still reads it
	}
	end.answer = end.answer && lost == nil
	e.end = end
	if len(l.cfg.observers) > 0 {
		ctx = context.WithoutCancel(ctx)
	}
	ok, dropped, err := e.sendEnd(ctx)
	if err == nil {
		if err = e.endAnswered(ctx, ok, lost); err == nil && dropped {
			err = errDropped
		}
		return err
	}
	later := context.WithoutCancel(ctx)
	e.reportFailedEnd(later, err)
	if end.settles {
		first := clock.Now()
		e.keepKey(later, func(closing bool) duty.Progress { return e.settleAgain(later, first, closing) })
	} else {
		e.addOrphan(EventReleased, e.lingers())
		e.close(false) // last: by then, the entry refuses no caller
	}
	return cmp.Or(lost, err)
}

var errDropped = fmt.Errorf("%w: the receipt was dropped, and an empty one left in its place", ErrFull)

// sendEnd makes the call that ends the lease in the store, within a budget, whether or not ctx has
// ended. It replaces a receipt for which the store has no room with an empty one: another try would
// not help, and the receipt must not stay in memory. The empty receipt fits where the claim was, and
// says that the work was done. An answer whose entry the store has lost gets a new entry.
func (e *Lease) sendEnd(ctx context.Context) (ok, dropped bool, err error) {
	l, n := e.locker, &e.end
	for again := false; ; {
		c := call{name: callRelease, key: e.entry, claim: e.claimOf(l.cfg.lease), receipt: n.receipt, keep: n.keep, quiet: true}
		if n.settles {
			c.name = callSettle
		}
		err = l.call(ctx, send.Terms{Budget: l.cfg.budget, Lasting: true}, &c)
		n.unanswered = n.unanswered || c.sent.Unanswered
		if err == nil && !c.ok && n.answer && !again && !e.mayBeOver() {
			if again, err = true, e.claimAgain(ctx); err == nil {
				continue
			}
		}
		if again && c.ok {
			l.warn(ctx, e, warnEntryLost)
		}
		if len(n.receipt) == 0 || !errors.Is(err, ErrFull) {
			return c.ok, dropped, err
		}
		l.warn(ctx, e, warnNoRoom, slog.Int("bytes", len(n.receipt)), slog.Any("error", err))
		n.receipt, dropped = nil, true
	}
}

// claimAgain claims the key of a run that has its answer, and whose entry the store has lost: in a failover, a restart,
// an eviction, or by an operator. Without a receipt, a repeat would do the work a second time. An entry of other work
// stays, and the next settle finds it. A claim without an answer fails the settle, which is repeated; not so a claim
// that is refused for good.
func (e *Lease) claimAgain(ctx context.Context) error {
	l := e.locker
	c := call{name: callClaim, key: e.entry, claim: e.claimOf(l.cfg.lease), quiet: true}
	c.claim.Replaces, c.claim.ReplacesHeld = "", false
	e.claim.takeover = false // the entry that it has replaced is gone
	err := l.call(ctx, send.Terms{Budget: l.cfg.budget, Lasting: true}, &c)
	if flight := c.sent.Flight; flight != nil && flight.Doubt() != (send.Doubt{}) {
		e.claim.flight = flight // later than all sends before it
	}
	if errors.Is(err, ErrFull) || errors.Is(err, ErrDenied) || errors.Is(err, errors.ErrUnsupported) {
		return nil
	}
	return err
}

// mayBeOver reports whether an end without an answer was perhaps applied, and the keep of its receipt is over.
func (e *Lease) mayBeOver() bool {
	n := &e.end
	return n.unanswered && e.claim.grantedAt.Since()-n.began >= n.keep
}

// reportFailedEnd logs an end that failed with err, and reports it to observers.
func (e *Lease) reportFailedEnd(ctx context.Context, err error) {
	l, took := e.locker, time.Duration(0)
	if tx, is := errors.AsType[*TransactionError](err); is && tx.Aborted {
		l.warn(ctx, e, warnAborted, slog.Any("error", err))
	} else {
		l.logFailure(ctx, err)
	}
	if !l.core.inProcess {
		took = e.claim.grantedAt.Since() - e.end.began
	}
	name := callRelease
	if e.end.settles {
		name = callSettle
	}
	l.emitFailed(ctx, e, name, took, err)
}

// endAnswered closes the lease after its end was answered.
//
// After an unanswered send, a "no" to a release means that the earlier send has released the key. A settle
// whose earlier send was applied finds its own receipt. So a "no" to a settle means that it
// was not applied, unless its receipt may have expired since.
func (e *Lease) endAnswered(ctx context.Context, ok bool, lost error) error {
	n := &e.end
	done := ok || e.mayBeOver()
	if e.run != nil && n.settles && done {
		lost = nil // the settle was late, and there was no takeover
	}
	if lost == nil && !done {
		lost = e.lose(errTaken)
	}
	e.close(true)
	if lost != nil {
		return lost
	}
	as := EventReleased
	if n.settles {
		as = EventSettled
	}
	e.locker.emit(ctx, e, as, 0, nil)
	return nil
}

// close frees the key and the alarms of the lease in this process. answered says that the store has
// confirmed the end of the lease.
func (e *Lease) close(answered bool) {
	opens := e.validity.Close()
	e.cancel(nil)
	if answered && (opens || !e.local.Unprotected()) { // otherwise Ring has done so, and the entry may have a holder again
		// An unanswered send of the claim can land after the release. Its entry would have no
		// holder, so the clean-up must know the token before the next caller gets the key.
		e.cleanUpClaim()
	}
	e.local.Leave(nil)
	e.locker.core.active.Leave()
}

// discard ends a lease, or its claim, that no caller gets because of err. err also answers the callers
// that wait for the claim; without err, the next of them claims the key itself.
func (e *Lease) discard(ctx context.Context, err error) {
	switch {
	case e.local.Granted():
		_ = e.giveBack(ctx)
	case e.local.Unprotected():
		_ = e.Release(ctx)
	default:
		e.cleanUpClaim()
		decide := func() local.Decision { return decisionOf(e, err) }
		if send.Gone(ctx) != nil { // other callers may get another answer
			decide = nil
		}
		e.local.Leave(decide)
		e.locker.core.active.Leave()
	}
}

// giveBack ends a lease whose work has failed, or has not begun.
func (e *Lease) giveBack(ctx context.Context) error {
	if e.attempt() == 1 {
		return e.Release(ctx)
	}
	if _, first := e.validity.End(false); first {
		e.giveBackTakeover(ctx)
	}
	return nil
}

// giveBackTakeover ends a lease that has taken over from an abandoned run. It is not released: the
// outcome of the earlier run is still unknown, and a release would delete the entry that says so.
// Instead the entry is given back as it was, abandoned, and the next call takes it over.
//
// A claim makes it abandoned: of one millisecond, under a token that no holder has. It replaces
// e's token only, whenever it lands. So it does nothing to a successor, and it needs no clean-up.
// If it does not land, or the store does not know ReplacesHeld, the entry lapses with its lease.
func (e *Lease) giveBackTakeover(ctx context.Context) {
	defer e.close(false)
	l := e.locker
	c := e.claimOf(time.Millisecond)
	c.Token, c.Replaces, c.ReplacesHeld, c.Attempt = l.core.tokens.next(), c.Token, true, c.Attempt-1
	_ = l.call(context.WithoutCancel(ctx), send.Terms{Budget: l.cfg.budget, Lasting: true}, &call{name: callClaim, key: e.entry, claim: c})
}

// keepKey has the key kept until try has ended the lease.
func (e *Lease) keepKey(ctx context.Context, try func(closing bool) duty.Progress) {
	c, n := e.locker.core, &e.end
	if c.inProcess {
		n.receipt = slices.Clone(n.receipt) // it still belongs to the caller
	}
	size := len(n.receipt)
	d := &duty.Duty{
		Subject: e.subject(EventSettled),
		Size:    size,
		Shrink: func() { // the answer was delivered, and repeats of the request learn only that the work was done
			n.receipt = nil
			e.locker.warn(ctx, e, warnBacklogFull, slog.Int("bytes", size), slog.Int64("backlog_bytes", c.duties.Stats().Bytes))
		},
		Try:    try,
		GiveUp: func() { e.close(false) },
	}
	e.local.MarkSettling(func() { c.duties.Now(d) })
	c.duties.Add(d)
}

// settleAgain sends the settle again. first is the moment after the first send. ErrFull and
// errors.ErrUnsupported are answers of the store, so Close does not wait for another one. When the keep
// is over, settleAgain stops: by then the receipt has no use. It also stops when the entry is no longer there. An
// entry of Once outlives its lease: until it is settled, the outcome counts as unknown.
func (e *Lease) settleAgain(ctx context.Context, first clock.Moment, closing bool) duty.Progress {
	ok, dropped, err := e.sendEnd(ctx)
	valid := e.validity.State()
	there := valid.Renews
	if e.run != nil {
		there = clock.Now() < valid.Until.Add(e.locker.cfg.keep)
	}
	refused := errors.Is(err, ErrFull) || errors.Is(err, errors.ErrUnsupported)
	switch {
	case err == nil:
		_ = e.endAnswered(ctx, ok, nil)
		return duty.Progress{Done: true}
	case refused && closing: // the entry ends by itself; an entry of Once says until then that the outcome is unknown
	case refused && first.Since() >= e.end.keep:
		e.addOrphan(EventReaped, e.lingers()) // first: once the key is free, the entry must not refuse a caller
	case there:
		return duty.Progress{Shrunk: dropped}
	}
	e.close(false)
	return duty.Progress{Done: true}
}

// cleanUpClaim gives the claim to the clean-up if it may have left an entry without a holder,
// or may still leave one. A takeover is not removed: its entry shows that the outcome of the
// earlier run is unknown. The next claim of the key replaces it: see Locker.judge.
func (e *Lease) cleanUpClaim() {
	flight := e.claim.flight
	if e.claim.orphaned || flight != nil && flight.Doubt() != (send.Doubt{}) {
		e.addOrphan(EventReaped, e.lingers())
	}
}

// lingers returns how long an entry of e outlives its lease: one of Once says for that time that the
// outcome is unknown.
func (e *Lease) lingers() time.Duration {
	if e.run != nil {
		return e.locker.cfg.keep
	}
	return 0
}

// addOrphan lets the clean-up remove the entry of e's last claim, which has no holder and outlives its lease
// by linger. It reports the removal as an event of this kind. A release without an answer may have removed the
// entry already. It reads nothing of e later, because e may be on its next claim by then.
func (e *Lease) addOrphan(as EventKind, linger time.Duration) {
	l, ctx, event := e.locker, context.WithoutCancel(e.parent), e.event(as, 0, nil)
	event.Left = 0
	began := time.Now()
	if as == EventReleased {
		began = e.claim.grantedAt.Wall()
	}
	o := &duty.Orphan{
		Subject:  e.subject(as),
		Flight:   e.claim.flight,
		Answered: e.claim.orphaned || as == EventReleased,
		Takeover: e.claim.takeover,
		Lease:    l.cfg.lease,
		Linger:   linger,
		Dropped:  func() { l.warn(ctx, nil, warnDropped, slog.Int("backlog", l.core.duties.Stats().Count)) },
	}
	unanswered := as == EventReleased && e.end.unanswered
	o.Remove = func() (found bool, err error) {
		terms := send.Terms{Budget: l.cfg.budget, Lasting: true, Single: true, Cleaning: true}
		release := call{name: callRelease, key: o.Entry, claim: Claim{Token: o.Token}}
		if err = l.call(ctx, terms, &release); err != nil {
			unanswered = unanswered || event.Kind == EventReleased && errors.Is(err, ErrUnknown)
			return false, err
		}
		if release.ok || unanswered {
			if unanswered = false; event.Kind == EventReaped {
				l.core.recent.note(EventReaped, o.Key)
			}
			event.Took = time.Since(began)
			l.Report(ctx, event)
			event.Kind = EventReaped // if an entry lands later
		}
		return release.ok, nil
	}
	l.core.duties.AddOrphan(o)
}

// subject describes a clean-up of e that will end with an event of this kind.
func (e *Lease) subject(kind EventKind) duty.Subject {
	return duty.Subject{Key: e.Key(), Entry: e.entry, Token: e.claim.token, Owner: e.owner, Kind: string(kind)}
}
