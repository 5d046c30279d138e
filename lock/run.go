package lock

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/httplatch/httplatch/internal/oncecall"
	"github.com/httplatch/httplatch/lock/internal/clock"
)

// run is one execution of a function under Once, in one allocation.
type run struct {
	lease Lease
	label string // what the caller calls the key
	scope string // whose work it is
	print []byte // the fingerprint; in room, if it is not longer, as those of package middleware are not
	room  [48]byte
	owner string // what its entry says of it; "": what that of a lock does

	// Written before the lease is granted.
	replaces string // token of the abandoned entry to take over
	attempt  int

	mu        sync.Mutex
	committed bool
	doubts    int    // calls that may have had an effect elsewhere
	doubtful  []byte // the receipt of a run that has failed while there were any
	freed     bool   // ended without a receipt, so that the key is free for the next

	early   sync.Mutex
	settled bool  // before the function returned
	end     error // of that

	tx *transaction // that the function runs in; nil if it runs in none
}

func newRun(ctx context.Context, l *Locker, key, record, scope string, fingerprint []byte) *run {
	r := new(run)
	if !l.core.inProcess {
		away := new(awayRun)
		r, away.lease.away = &away.run, &away.away
	}
	r.label, r.scope, r.attempt = key, scope, 1
	e := &r.lease
	e.run, e.locker, e.key, e.parent = r, l, record, ctx
	l.core.keys.Prepare((*holder)(e))
	// The local keys and the store's calls read it for longer than Once lasts.
	r.print = append(r.room[:0], fingerprint...)
	return r
}

type runKey struct{}

// runOf returns the run that ctx is of, nil if there is none.
func runOf(ctx context.Context) *run {
	r, _ := ctx.Value(runKey{}).(*run)
	return r
}

// fail ends a run that has no receipt because of err.
func (r *run) fail(ctx context.Context, err error) error {
	settled, _ := r.settledEarly()
	freed := !settled && r.free()
	if r.tx != nil {
		r.rollback(ctx)
	}
	switch {
	case settled:
		return nil
	case !freed:
		return r.failed(ctx)
	default:
		r.shareFailure(err)
		return r.lease.giveBack(ctx)
	}
}

// shareFailure ends the wait of those calls of this process that have waited for r:
// its failure is the answer to all of them, or each would try again what has just
// failed. If the caller's own context has ended, or the lease was lost, that may be
// why, and says nothing to others; nor does a failure of this caller alone.
func (r *run) shareFailure(err error) {
	e := &r.lease
	if s, ok := errors.AsType[oncecall.Sharer](err); ok && !s.Shared() {
		return
	}
	if e.local.Met() && e.parent.Err() == nil && e.lostError() == nil {
		e.locker.core.keys.Share((*holder)(e), &decision{failure: err})
	}
}

// free notes that the run ends without a receipt, unless it may have had an effect
// ([Commit], [run.Doubt]), and reports whether it does: from here on, nothing can be
// committed.
func (r *run) free() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.freed = !r.committed && r.doubts == 0
	return r.freed
}

// failed ends a run that has failed and is not free.
func (r *run) failed(ctx context.Context) error {
	receipt := r.failureReceipt()
	err := r.settle(ctx, receipt)
	if receipt != nil {
		r.lease.locker.logDoubtful(ctx, &r.lease)
	}
	return err
}

// failureReceipt is the receipt of a run that has failed and is not free.
func (r *run) failureReceipt() []byte {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.doubts == 0 {
		return nil
	}
	return r.doubtful
}

// succeed leaves the receipt.
func (r *run) succeed(ctx context.Context, receipt []byte) ([]byte, bool, error) {
	if r.tx != nil {
		return r.commit(ctx, receipt)
	}
	settled, err := r.settledEarly()
	if !settled {
		err = r.settle(ctx, receipt)
	}
	if !errors.Is(err, ErrLost) {
		// It is settled, or will be as soon as the store answers.
		return receipt, false, nil
	}
	return r.winner(ctx, err)
}

func (r *run) wasFreed() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.freed
}

// winner returns the receipt of the run that has taken over from one that lost its
// lease: there can be one answer only.
func (r *run) winner(ctx context.Context, lost error) ([]byte, bool, error) {
	e := &r.lease
	l := e.locker
	var entry Entry
	err := l.ask(ctx, l.lastingTerms(), sendFunc(func(ctx context.Context) (err error) {
		entry, err = l.core.store.Get(ctx, e.key)
		return err
	}))
	if err == nil && entry.State == Settled && sameRequest(r.print, entry.Fingerprint) {
		return entry.Receipt, true, nil
	}
	return nil, false, lost
}

// SettleEarly implements oncecall.Run.
func (r *run) SettleEarly(ctx context.Context, receipt []byte) error {
	if r.tx != nil {
		return errEarly
	}
	if err := r.lease.lostError(); err != nil {
		return err
	}
	r.early.Lock()
	defer r.early.Unlock() // a second call waits for the outcome of the first
	if r.wasFreed() {
		return errReleased
	}
	if !r.settled {
		r.settled = true
		r.end = r.settle(ctx, receipt)
	}
	return r.end
}

func (r *run) settledEarly() (settled bool, end error) {
	r.early.Lock()
	defer r.early.Unlock()
	return r.settled, r.end
}

func (r *run) settle(ctx context.Context, receipt []byte) error {
	return r.lease.Settle(ctx, receipt, r.lease.locker.cfg.keep)
}

// InTransaction implements oncecall.Run.
func (r *run) InTransaction() bool { return r.tx != nil }

var errEarly = errors.New("lock: nothing can be settled before the work's transaction is")

// Committed implements oncecall.Run.
func (r *run) Committed() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.committed
}

// Doubt implements oncecall.Run.
func (r *run) Doubt(ctx context.Context, receipt []byte) error {
	if settled, _ := r.settledEarly(); settled {
		return nil // nothing frees the key any more
	}
	noted := false
	err := r.note(ctx, func() { noted, r.doubts, r.doubtful = true, r.doubts+1, receipt })
	if err != nil && noted {
		r.Dispel()
	}
	return err
}

// Dispel implements oncecall.Run.
func (r *run) Dispel() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.doubts = max(0, r.doubts-1) // a call behind a settled answer was not counted
}

// mayHaveEffect reports whether a failure of r no longer says that there was no effect.
func (r *run) mayHaveEffect() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.committed || r.doubts > 0
}

// note has mark note that an effect has happened, or may have, and the store where only
// the store would know of it after a crash.
func (r *run) note(ctx context.Context, mark func()) error {
	r.mu.Lock()
	freed := r.freed
	if !freed {
		mark()
	}
	r.mu.Unlock()
	if freed {
		return errReleased
	}
	e := &r.lease
	l := e.locker
	if err := e.lostError(); err != nil {
		return err
	}
	if !l.cfg.rerun && !l.cfg.inTx {
		return nil // a record whose holder has vanished is never run again
	}
	hold := l.cfg.keep
	if !l.cfg.rerun {
		hold = max(e.leaseLeft(clock.Now()), time.Millisecond) // it is the linger that is to be noted
	}
	renew := &renewRequest{store: l.core.store, key: e.key, claim: e.claimOf(hold)}
	err := l.ask(ctx, l.lastingTerms(), renew)
	switch {
	case err != nil:
		l.emitFailed(ctx, e, callRenew, l.cfg.budget, err)
		return err
	case !renew.ok:
		return e.lose(errTaken)
	}
	return nil
}

var _ oncecall.Run = (*run)(nil)
