package lock

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/httplatch/httplatch/lock/internal/bounded"
	"github.com/httplatch/httplatch/lock/internal/cleanup"
	"github.com/httplatch/httplatch/lock/internal/clock"
	"github.com/httplatch/httplatch/lock/internal/send"
	"github.com/httplatch/httplatch/lock/internal/validity"
)

// maxPendingBytes bounds what the receipts hold in memory that the store has not
// answered for: 64 answers of the longest that package middleware keeps unless set
// otherwise, and more than a minute of 1,000 a second with 1 KiB each. An outage may
// last for longer than that, and must not end the process.
const maxPendingBytes = 64 << 20

// finishLater has the cleaner repeat the end ([Lease.retryEnd]) until it is answered, or the
// lease is over; for a settle of Once, as long as its entry is kept. What a release without an
// answer may have left then is an [orphan], whose removal goes on. Meanwhile other
// callers of this process do not get the key; each that wants it has the store asked again.
func (e *Lease) finishLater(ctx context.Context) {
	first := clock.Now()
	e.repeatInBackground(ctx, func(closing bool) cleanup.Progress { return e.retryEnd(ctx, first, closing) })
}

// repeatInBackground has the cleaner make attempts until one ends the lease.
func (e *Lease) repeatInBackground(ctx context.Context, attempt func(closing bool) cleanup.Progress) {
	c := e.locker.core
	t := &cleanup.Task{
		Subject: e.cleanupOf(e.end.kind()),
		Attempt: attempt,
		GiveUp:  func() { e.close(false) },
	}
	dropped := e.keepPending()
	if !e.end.settles {
		e.openAtExpiry()
	}
	c.keys.MarkEnding((*holder)(e), func() { c.cleaner.Kick(t) })
	c.cleaner.Repeat(t)
	if dropped > 0 {
		e.locker.logBacklogFull(ctx, &e.identity, dropped, c.pendingBytes.Load())
	}
}

// openAtExpiry has others of this process get the key when the lease is over, and what it
// has left removed then.
func (e *Lease) openAtExpiry() {
	e.validity.OpenLater(validity.OpensOrphaned, e.setAlarm)
}

// retryEnd sends the end, which was sent first then, once more. That a store is full is an
// answer: Close does not wait for another one, and when the keep is over there is nothing left
// to settle.
func (e *Lease) retryEnd(ctx context.Context, first clock.Moment, closing bool) cleanup.Progress {
	ok, _, err := e.sendEnd(ctx)
	settles := e.end.settles
	full := settles && errors.Is(err, ErrFull)
	switch {
	case err == nil:
		_ = e.finished(ctx, ok, nil)
		return cleanup.Progress{Done: true}
	case full && closing: // what is there ends by itself; one of Once says until then that the outcome is unknown
	case full && first.Since() >= e.end.keep, !settles && !e.mayRemain():
		e.addOrphan() // before the key is free: what is left may refuse no caller
	case e.mayRemain():
		return cleanup.Progress{}
	}
	e.close(false)
	return cleanup.Progress{Done: true, Unanswered: !full}
}

// mayRemain says whether the entry can still be there.
func (e *Lease) mayRemain() bool {
	renewed, until := e.validity.Renewed()
	switch {
	case !e.end.settles:
		return clock.Now() < until // after that, it is an orphan
	case renewed:
		return true // it can be settled yet
	case e.record != nil:
		// The entry outlives its lease, and until it is settled it says that the
		// outcome is unknown.
		return clock.Now() < until.Add(e.locker.cfg.keep)
	default:
		return false
	}
}

// keepPending keeps the receipt of an end that is to be repeated, if there is room.
// Else it is dropped and an empty one settled: the answer was delivered, and repeats
// of its request learn that there was one. It returns how long a dropped one was.
func (e *Lease) keepPending() (dropped int) {
	c, n := e.locker.core, &e.end
	size := len(n.receipt)
	switch {
	case size == 0:
	case !bounded.Add(&c.pendingBytes, int64(size), maxPendingBytes):
		e.dropReceipt()
		return size
	default:
		n.pending = true
		if c.inProcess {
			n.receipt = slices.Clone(n.receipt) // its caller's until now
		}
	}
	return 0
}

// dropReceipt forgets the receipt of an end. An empty one is settled.
func (e *Lease) dropReceipt() {
	e.uncountReceipt()
	e.end.receipt = nil
}

// uncountReceipt takes the receipt out of the count of those that wait.
func (e *Lease) uncountReceipt() {
	if n := &e.end; n.pending {
		n.pending = false
		e.locker.core.pendingBytes.Add(-int64(len(n.receipt)))
	}
}

// sendEnd asks the store, for the first time or again, within a budget, and whether or not ctx has
// ended. A receipt that the store has no room for is not worth another try, and must
// not stay in memory for one. It is dropped: an empty receipt fits where the claim
// did, and says that the work was done.
func (e *Lease) sendEnd(ctx context.Context) (ok, dropped bool, err error) {
	ok, err = e.sendEndOnce(ctx)
	size := len(e.end.receipt)
	if size == 0 || !errors.Is(err, ErrFull) {
		return ok, false, err
	}
	noRoom := err
	e.dropReceipt()
	ok, err = e.sendEndOnce(ctx)
	e.locker.logNoRoom(ctx, &e.identity, size, noRoom)
	return ok, true, err
}

var errDropped = fmt.Errorf("%w: the receipt was dropped, and an empty one left in its place", ErrFull)

func (e *Lease) sendEndOnce(ctx context.Context) (ok bool, err error) {
	l, n := e.locker, &e.end
	if l.core.inProcess {
		r := endRequest{store: l.core.store, key: string(e.entry), claim: e.claimOf(l.cfg.lease), receipt: n.receipt, keep: n.keep}
		err = r.Send(lasting)
		return r.ok, publicError(err, false)
	}
	r, call := &e.away.end, &e.away.ended
	if r.key != "" {
		r, call = new(endRequest), new(send.Call)
	}
	r.store, r.key, r.claim, r.receipt, r.keep = l.core.store, string(e.entry), e.claimOf(l.cfg.lease), n.receipt, n.keep
	defer func() { r.receipt = nil }() // it may be dropped, and not stay in memory here
	err = l.core.ask(ctx, call, l.lastingTerms(), r)
	n.unanswered = n.unanswered || call.Unanswered()
	return r.ok, err
}

// call is what it asks of the store.
func (n *end) call() string {
	if n.settles {
		return callSettle
	}
	return callRelease
}
