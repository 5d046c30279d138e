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
func (e *Lease) sendEnd(ctx context.Context) (ok, dropped bool, err error) {
	ok, err = e.sendEndOnce(ctx)
	size := len(e.end.receipt)
	if size == 0 || !errors.Is(err, ErrFull) {
		return ok, false, err
	}
	noRoom := err
	e.dropReceipt()
	ok, err = e.sendEndOnce(ctx)
	e.locker.logNoRoom(ctx, e, size, noRoom)
	return ok, true, err
}

var errDropped = fmt.Errorf("%w: the receipt was dropped, and an empty one left in its place", ErrFull)

func (e *Lease) sendEndOnce(ctx context.Context) (ok bool, err error) {
	l, n, call := e.locker, &e.end, e.call()
	release := releaseRequest{l.core.store, e.key, e.token}
	if n.settles {
		ok, err = ask[bool](ctx, l.core, call, l.lastingTerms(), settleRequest{release, n.receipt, n.keep})
	} else {
		ok, err = ask[bool](ctx, l.core, call, l.lastingTerms(), release)
	}
	n.unanswered = n.unanswered || call.Unanswered()
	return ok, err
}

// call is what it asks of the store.
func (n *end) call() string {
	if n.settles {
		return callSettle
	}
	return callRelease
}
