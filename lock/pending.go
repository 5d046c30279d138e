package lock

import (
	"context"
	"slices"
)

// maxPendingBytes bounds what the receipts hold in memory that the store has not
// answered for: 64 answers of the longest that package middleware keeps unless set
// otherwise, and more than a minute of 1,000 a second with 1 KiB each. An outage may
// last for longer than that, and must not end the process.
const maxPendingBytes = 64 << 20

// keepPending keeps the receipt of an end that is to be repeated, if there is room.
// Else an empty one is settled: the answer was delivered, and repeats of its request
// learn that there was one.
func (e *Lease) keepPending(ctx context.Context) {
	c, n := e.locker.core, &e.end
	size := len(n.receipt)
	switch {
	case size == 0:
	case !add(&c.reaper.bytes, int64(size), maxPendingBytes):
		e.dropReceipt()
		e.locker.logBacklogFull(ctx, e, size)
	default:
		n.pending = true
		if c.prompt {
			n.receipt = slices.Clone(n.receipt) // its caller's until now
		}
	}
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
		e.locker.core.reaper.bytes.Add(-int64(len(n.receipt)))
	}
}
