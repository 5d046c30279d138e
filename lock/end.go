package lock

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/httplatch/httplatch/internal/oncecall"
	"github.com/httplatch/httplatch/lock/event"
	"github.com/httplatch/httplatch/lock/internal/send"
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
	return e.finish(ctx, end{})
}

// Settle ends the lease and leaves receipt in its place for keep: until then
// the key is refused with [ErrSettled]. A nil receipt is a cool-down. It does
// so even if ctx has ended, and takes at most the budget, twice that if the store has no
// room for receipt; its errors are those of [Lease.Release], and like there a missing answer is followed up in the
// background, with the lease renewed meanwhile. If the store has no room for
// receipt, an empty one is left for keep, and an error that matches [ErrFull] says
// so. After work that ran unprotected ([WithFailOpen]) nothing is left, and the error
// matches ErrUnavailable. It panics if keep is not positive.
func (e *Lease) Settle(ctx context.Context, receipt []byte, keep time.Duration) error {
	positive("Settle: keep", keep)
	if e == nil {
		return fmt.Errorf("%w: there is none", ErrLost)
	}
	return e.finish(ctx, end{settles: true, receipt: receipt, keep: keep})
}

// end is how a lease is ended: by a release, or by a settle. It belongs to the goroutine that
// ended the work, and then to the cleaner's. Others read settles, once the local keys know that
// the work is over (local.Table.MarkEnding).
type end struct {
	settles    bool
	unanswered bool // some send of it was
	pending    bool // its receipt counts as one that waits for the store
	receipt    []byte
	keep       time.Duration
	began      time.Duration // from the grant to before the first send; not set if the store answers all
}

func (n *end) kind() event.Kind {
	if n.settles {
		return event.Settled
	}
	return event.Released
}

// confirmed says whether an answered end is ours. A "no" that follows an unanswered
// send means, for a release, that the first send has done it. A settle finds its
// own receipt, so there it means no, unless that can be over by now.
func (e *Lease) confirmed(ok bool) bool {
	n := &e.end
	return ok || n.unanswered && (!n.settles || e.claim.grantedAt.Since()-n.began >= n.keep)
}

// finish ends the lease. Only the first call does: after a settle that may have
// been applied, a release would be the loss of its receipt. It does not end with
// ctx: the request that was served may be gone, and its lock must not stay for that.
func (e *Lease) finish(ctx context.Context, how end) error {
	if e.bypassed() {
		return e.finishBypassed(how.settles)
	}
	why, first := e.validity.End(how.settles)
	if !first {
		return nil
	}
	e.setEnd(how)
	return e.sendFinish(ctx, why.orNil())
}

// setEnd says how the lease ends. The receipt is copied for a store that has to be
// waited for: a send that has not returned in time still reads it.
func (e *Lease) setEnd(how end) {
	e.end = how
	if n := &e.end; !e.locker.core.inProcess {
		n.began = e.claim.grantedAt.Since()
		n.receipt = slices.Clone(n.receipt)
	}
}

// sendFinish asks the store for the end of the lease. lost is why it was lost, nil if it
// was not.
func (e *Lease) sendFinish(ctx context.Context, lost error) error {
	l := e.locker
	if l.observed() {
		ctx = context.WithoutCancel(ctx)
	}
	seenTo := false
	defer func() {
		if !seenTo { // a hook of the store's, an observer or a logger has ended this goroutine, or panicked
			e.end.unanswered = true
			e.finishLater(context.WithoutCancel(ctx))
		}
	}()
	ok, dropped, err := e.sendEnd(ctx)
	if err == nil {
		seenTo = true
		err = e.finished(ctx, ok, lost)
		if err == nil && dropped {
			return errDropped
		}
		return err
	}
	ctx = context.WithoutCancel(ctx)
	e.notFinished(ctx, err)
	seenTo = true
	e.finishLater(ctx)
	if lost != nil {
		return lost
	}
	return err
}

// notFinished reports that the end got no answer.
func (e *Lease) notFinished(ctx context.Context, err error) {
	l, took := e.locker, time.Duration(0)
	if _, aborted := errors.AsType[*oncecall.AbortedError](err); aborted {
		l.logAborted(ctx, &e.identity, err)
	} else {
		l.trouble(ctx, err)
	}
	if !l.core.inProcess {
		took = e.claim.grantedAt.Since() - e.end.began
	}
	l.emitFailed(ctx, &e.identity, e.end.call(), took, err)
}

// finished closes the books of a lease whose end was answered.
func (e *Lease) finished(ctx context.Context, ok bool, lost error) error {
	done := e.confirmed(ok)
	if e.record != nil && e.end.settles && done {
		lost = nil // it was late, and there was no takeover
	}
	if lost == nil && !done {
		lost = e.lose(errTaken)
	}
	e.close(true)
	if lost != nil {
		return lost
	}
	e.emitEnded(ctx)
	return nil
}

// emitEnded reports a lease that has ended as its holder wanted.
func (e *Lease) emitEnded(ctx context.Context) {
	l := e.locker
	if !l.observed() {
		return
	}
	v := e.event(e.end.kind(), e.claim.grantedAt.Since(), nil)
	v.Size = len(e.end.receipt)
	_, until := e.validity.Renewed()
	v.Left = max(until.Until(), 0)
	l.announce(ctx, v)
}

// close gives back everything the lease holds in this process. answered says
// that the store has confirmed its end.
func (e *Lease) close(answered bool) {
	e.validity.Close()
	e.cancel(nil)
	e.uncountReceipt()
	if answered {
		// A send of the claim that got no answer can land after the release, and its
		// entry has no holder. It must be known as dead before the next one gets the
		// key.
		e.cleanUpClaim()
	}
	e.locker.core.keys.Leave((*holder)(e))
	e.locker.core.owners.Leave()
}

// endUnreturned ends a lease, or the claim of one, whose caller does not return from its call.
func (e *Lease) endUnreturned() {
	switch {
	case e.local.Granted():
		_ = e.giveBack(e.parent)
	case e.bypassed():
		e.endBypassed()
	default:
		e.cleanUpClaim()
		e.locker.core.keys.Leave((*holder)(e))
		e.locker.core.owners.Leave()
	}
}

// giveBack ends a lease whose work has failed, or was not begun. One that was a
// takeover is left to lapse: what became of the attempt before it is as unknown as
// ever, and to free the key would be to forget that.
func (e *Lease) giveBack(ctx context.Context) error {
	if e.attempt() > 1 {
		e.lapse()
		return nil
	}
	return e.Release(ctx)
}

// lapse ends the lease, and asks nothing of the store.
func (e *Lease) lapse() {
	if _, first := e.validity.End(true); first {
		e.close(false)
	}
}

// cleanUpClaim hands what a claim may have left, or may leave yet, to the cleaner. One
// that was to take over is not removed, since what it replaced is of unknown outcome,
// and to remove it would be to forget that: see Locker.adopt.
func (e *Lease) cleanUpClaim() {
	if e.claim.orphaned || e.claim.call.Flight().Doubt() != (send.Doubt{}) {
		e.addOrphan()
	}
}
