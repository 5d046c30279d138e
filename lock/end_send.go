package lock

import (
	"context"
	"errors"
	"fmt"
)

// sendEnd asks the store once more, within a budget, and whether or not ctx has
// ended. A receipt that the store has no room for is not worth another try, and must
// not stay in memory for one. It is dropped: an empty receipt fits where the claim
// did, and says that the work was done.
func (e *Lease) sendEnd(ctx context.Context) (r reply[bool], dropped bool) {
	r = e.sendEndOnce(ctx)
	size := len(e.end.receipt)
	if size == 0 || !errors.Is(r.err, ErrFull) {
		return r, false
	}
	noRoom := r.err
	e.dropReceipt()
	r = e.sendEndOnce(ctx)
	e.locker.logNoRoom(ctx, e, size, noRoom)
	return r, true
}

var errDropped = fmt.Errorf("%w: the receipt was dropped, and an empty one left in its place", ErrFull)

func (e *Lease) sendEndOnce(ctx context.Context) reply[bool] {
	c, n := e.locker.core, &e.end
	receipt := n.receipt // sends that are not waited for any more still read it
	if c.prompt {
		return direct(e.tellEnd(ctx, receipt)) // not as a value, which costs an allocation
	}
	x := outgoing{core: c, parent: ctx, deaf: true, budget: e.locker.cfg.budget, most: maxSends}
	defer x.abandon()
	for try, more := x.next(); more; try, more = x.next() {
		ok, err := e.tellEnd(try, receipt)
		if x.back(try, err) {
			n.unanswered = n.unanswered || x.unanswered
			return reply[bool]{ok, x.err, x.unanswered}
		}
	}
	r := hedge(x, func(ctx context.Context) (bool, error) { return e.tellEnd(ctx, receipt) })
	n.unanswered = n.unanswered || r.unanswered
	return r
}

// tellEnd is one send of it.
func (e *Lease) tellEnd(ctx context.Context, receipt []byte) (bool, error) {
	store, n := e.locker.core.store, &e.end
	if n.settles {
		return store.Settle(ctx, e.key, e.token, receipt, n.keep)
	}
	return store.Release(ctx, e.key, e.token)
}

// call is what it asks of the store.
func (n *end) call() string {
	if n.settles {
		return callSettle
	}
	return callRelease
}
