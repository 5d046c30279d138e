package lock

import (
	"context"
	"errors"
	"fmt"

	"github.com/httplatch/httplatch/lock/internal/send"
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
	l, n := e.locker, &e.end
	if l.core.local {
		r := endRequest{store: l.core.store, key: e.key, token: e.claim.token, receipt: n.receipt, keep: n.keep}
		err = r.Send(lasting)
		return r.ok, publicError(err, false)
	}
	r, call := &e.away.end, &e.away.ended
	if r.key != "" {
		r, call = new(endRequest), new(send.Call)
	}
	r.store, r.key, r.token, r.receipt, r.keep = l.core.store, e.key, e.claim.token, n.receipt, n.keep
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
