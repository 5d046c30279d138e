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
	lease  Lease
	record record

	early   sync.Mutex
	settled bool  // before the function returned
	end     error // of that

	tx *transaction // that the function runs in; nil if it runs in none
}

func newRun(ctx context.Context, l *Locker, key string, entry entryName, scope string, fingerprint []byte) *run {
	r := new(run)
	if !l.core.inProcess {
		away := new(awayRun)
		r, away.lease.away = &away.run, &away.away
	}
	rec := &r.record
	rec.run, rec.label, rec.scope, rec.attempt = r, key, scope, 1
	e := &r.lease
	e.record, e.locker, e.entry, e.parent = rec, l, entry, ctx
	l.core.keys.Prepare((*holder)(e))
	// The local keys and the store's calls read it for longer than Once lasts.
	rec.print = append(rec.room[:0], fingerprint...)
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
	freed := !settled && r.record.effects.free()
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

// failed ends a run that has failed and is not free.
func (r *run) failed(ctx context.Context) error {
	receipt := r.record.effects.receipt()
	err := r.settle(ctx, receipt)
	if receipt != nil {
		r.lease.locker.logDoubtful(ctx, &r.lease.identity)
	}
	return err
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

// winner returns the receipt of the run that has taken over from one that lost its
// lease: there can be one answer only.
func (r *run) winner(ctx context.Context, lost error) ([]byte, bool, error) {
	e := &r.lease
	l := e.locker
	var entry Entry
	err := l.ask(ctx, l.lastingTerms(), sendFunc(func(ctx context.Context) (err error) {
		entry, err = l.core.store.Get(ctx, string(e.entry))
		return err
	}))
	if err == nil && entry.State == Settled && sameRequest(r.record.print, entry.Fingerprint) {
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
	if r.record.effects.wasFreed() {
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
func (r *run) Committed() bool { return r.record.effects.wasCommitted() }

// Doubt implements oncecall.Run.
func (r *run) Doubt(ctx context.Context, receipt []byte) error {
	if settled, _ := r.settledEarly(); settled {
		return nil // nothing frees the key any more
	}
	noted, f := false, &r.record.effects
	err := r.note(ctx, func() { noted, f.doubts, f.doubtful = true, f.doubts+1, receipt })
	if err != nil && noted {
		r.Dispel()
	}
	return err
}

// Dispel implements oncecall.Run.
func (r *run) Dispel() { r.record.effects.dispel() }

// note has mark note that an effect has happened, or may have, and the store where only
// the store would know of it after a crash.
func (r *run) note(ctx context.Context, mark func()) error {
	if !r.record.effects.note(mark) {
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
	renew := &renewRequest{store: l.core.store, key: string(e.entry), claim: e.claimOf(hold)}
	err := l.ask(ctx, l.lastingTerms(), renew)
	switch {
	case err != nil:
		l.emitFailed(ctx, &e.identity, callRenew, l.cfg.budget, err)
		return err
	case !renew.ok:
		return e.lose(errTaken)
	}
	return nil
}

var _ oncecall.Run = (*run)(nil)
