package lock

import (
	"context"
	"fmt"
	"time"
)

// Release frees the key. It does so even if ctx has ended, and takes at most
// the budget. The second call, and one after [Lease.Settle], do nothing and
// return nil.
//
// An error that matches [ErrLost] says that the lease had ended before: what
// was done under it may have overlapped with another holder's work. One that
// matches [ErrUnavailable] says that the store gave no answer; the release is
// then completed in the background.
func (e *Lease) Release(ctx context.Context) error {
	if e == nil {
		return nil
	}
	return e.finish(ctx, EventReleased, func(ctx context.Context) (bool, error) {
		return e.locker.core.store.Release(ctx, e.key, e.token)
	})
}

// Settle ends the lease and leaves receipt in its place for keep: until then
// the key is refused with [ErrSettled]. A nil receipt is a cool-down. It does
// so even if ctx has ended, and takes at most the budget; its errors are those
// of [Lease.Release], and like there a missing answer is followed up in the
// background, with the lease renewed meanwhile. It panics if keep is not
// positive.
func (e *Lease) Settle(ctx context.Context, receipt []byte, keep time.Duration) error {
	positive("Settle: keep", keep)
	if e == nil {
		return fmt.Errorf("%w: there is none", ErrLost)
	}
	return e.finish(ctx, EventSettled, func(ctx context.Context) (bool, error) {
		return e.locker.core.store.Settle(ctx, e.key, e.token, receipt, keep)
	})
}

// finish ends the lease with call. Only the first one does: after a settle
// that may have been applied, a release would be the loss of its receipt.
func (e *Lease) finish(ctx context.Context, kind EventKind, call func(context.Context) (bool, error)) error {
	e.mu.Lock()
	if e.phase != holding {
		e.mu.Unlock()
		return nil
	}
	e.phase = ended
	lost := e.lost
	if kind == EventReleased {
		e.stopTimers() // what is about to be given back needs no renewal
	}
	e.mu.Unlock()

	// The request that was served may be gone. Its lock must not stay for that.
	ctx = context.WithoutCancel(ctx)
	l := e.locker
	r := exchange(ctx, l.core, l.cfg.budget, nil, call)
	if r.err != nil {
		l.trouble(ctx, r.err)
		l.emit(ctx, e, EventUnknown, 0, r.err)
		e.finishLater(ctx, kind, call)
		if lost != nil {
			return lost
		}
		return r.err
	}
	return e.finished(ctx, kind, e.done(kind, r), lost)
}

// done says whether an answered end is ours. A "no" to a release that follows
// an unanswered send of it means that the first send has done it. A settle finds
// its own receipt, so there a "no" is a "no", unless the receipt was to be kept
// for so short a time that it may be over.
func (e *Lease) done(kind EventKind, r reply[bool]) bool {
	return r.value || r.unanswered && (kind == EventReleased || e.run == nil)
}

// finished closes the books of a lease whose end was answered. done says that
// the store ended it for us.
func (e *Lease) finished(ctx context.Context, kind EventKind, done bool, lost error) error {
	if e.run != nil && kind == EventSettled && done {
		lost = nil // it was late, and nobody had taken over
	}
	if lost == nil && !done {
		lost = e.lose("another process took or removed the entry")
	}
	e.close()
	if lost != nil {
		return lost
	}
	e.locker.emit(ctx, e, kind, time.Since(e.grantedAt), nil)
	return nil
}

// close gives back everything the lease holds in this process.
func (e *Lease) close() {
	e.mu.Lock()
	e.phase = over
	e.stopTimers()
	e.mu.Unlock()
	c := e.locker.core
	e.cancel(nil)
	c.gate.leave(e)
	// A send of the claim that nobody has heard of can land after the release,
	// and would then hold the key for nobody.
	e.abandonClaim()
	c.owners.leave()
}

// finishLater repeats call until it is answered or the entry cannot be there
// any more. The key stays shut in this process meanwhile, but asks again for
// whoever wants it.
func (e *Lease) finishLater(ctx context.Context, kind EventKind, call func(context.Context) (bool, error)) {
	l := e.locker
	c := l.core
	e.mu.Lock()
	giveUp := e.validUntil
	e.mu.Unlock()
	if e.run != nil {
		// The entry outlives its lease, and until it is settled or released it
		// says that the outcome is unknown.
		giveUp = giveUp.Add(l.cfg.keep)
	}
	t := &task{giveUp: e.close}
	t.attempt = func(closing bool) bool {
		r := exchange(ctx, c, l.cfg.budget, nil, call)
		switch {
		case r.err == nil:
			r.unanswered = true // the sends before this exchange were
			_ = e.finished(ctx, kind, e.done(kind, r), nil)
			return true
		case kind == EventSettled && e.lostError() == nil && !closing:
			return false // its lease is still renewed: it can be settled yet
		case !closing && time.Now().Before(giveUp):
			return false
		}
		if e.run == nil || kind == EventReleased {
			// The lease has run out in the store too, unless a command is still on
			// its way; that is the sweep's to see to. What a run that succeeded has
			// left says that it must not run again.
			c.reaper.add(e.sweep())
		}
		e.close()
		return true
	}
	c.gate.end(e, func() { c.reaper.kick(t) })
	c.reaper.addTask(t)
}

// lostError is why the lease was lost, nil if it was not.
func (e *Lease) lostError() error {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.lost
}

// abandonClaim hands a claim with an unanswered send to the reaper.
func (e *Lease) abandonClaim() {
	if e.unanswered {
		e.locker.core.reaper.add(e.sweep())
		e.unanswered = false
	}
}
