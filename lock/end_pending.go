package lock

import (
	"context"
	"errors"
	"slices"

	"github.com/httplatch/httplatch/lock/internal/bounded"
)

// maxPendingBytes bounds what the receipts hold in memory that the store has not
// answered for: 64 answers of the longest that package middleware keeps unless set
// otherwise, and more than a minute of 1,000 a second with 1 KiB each. An outage may
// last for longer than that, and must not end the process.
const maxPendingBytes = 64 << 20

// finishLater repeats the end until it is answered or the entry cannot be there any
// more. Meanwhile other callers of this process do not get the key; each that wants it
// has the store asked again.
func (e *Lease) finishLater(ctx context.Context) {
	c, first := e.locker.core, now()
	t := &task{
		in:      &c.cleaner.ends,
		attempt: func(closing bool) progress { return progress{done: e.repeatEnd(ctx, first, closing)} },
		giveUp:  func() { e.close(false) },
		of:      Cleanup{Key: e.label(), Entry: e.key, Token: e.claim.token, Kind: e.end.kind()},
	}
	dropped := e.keepPending()
	if !e.end.settles {
		e.validity.mu.Lock()
		e.validity.openLater(opensOrphaned)
		e.setAlarm()
		e.validity.mu.Unlock()
	}
	c.gate.end(e, func() { c.cleaner.kick(t) })
	c.cleaner.start(t)
	if dropped > 0 {
		e.locker.logBacklogFull(ctx, e, dropped)
	}
}

// repeatEnd sends the end, which was sent first then, once more and reports whether
// it need not be sent again. That a store is full is an answer: Close does not wait
// for another one, and when the keep is over there is nothing left to settle.
func (e *Lease) repeatEnd(ctx context.Context, first moment, closing bool) (done bool) {
	ok, _, err := e.sendEnd(ctx)
	settles := e.end.settles
	full := settles && errors.Is(err, ErrFull)
	switch {
	case err == nil:
		_ = e.finished(ctx, ok, nil)
		return true
	case full && closing: // what is there ends by itself; one of Once says until then that the outcome is unknown
	case full && first.since() >= e.end.keep, !settles && !e.worthRepeating():
		e.locker.core.cleaner.add(e.orphan()) // before the gate opens: what is left may refuse no caller
	case e.worthRepeating():
		return false
	}
	e.close(false)
	return true
}

// worthRepeating says whether the entry can still be there.
func (e *Lease) worthRepeating() bool {
	renewed, until := e.validity.renewed()
	switch {
	case !e.end.settles:
		return now() < until // after that, it is an orphan
	case renewed:
		return true // it can be settled yet
	case e.run != nil:
		// The entry outlives its lease, and until it is settled it says that the
		// outcome is unknown.
		return now() < until.add(e.locker.cfg.keep)
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
	case !bounded.Add(&c.cleaner.bytes, int64(size), maxPendingBytes):
		e.dropReceipt()
		return size
	default:
		n.pending = true
		if c.local {
			n.receipt = slices.Clone(n.receipt) // its caller's until now
		}
	}
	return 0
}

// dropReceipt forgets the receipt of an end. An empty one is settled.
func (e *Lease) dropReceipt() {
	e.releasePending()
	e.end.receipt = nil
}

// releasePending takes the receipt out of the count of those that wait.
func (e *Lease) releasePending() {
	if n := &e.end; n.pending {
		n.pending = false
		e.locker.core.cleaner.bytes.Add(-int64(len(n.receipt)))
	}
}
