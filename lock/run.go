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

	earlyMu      sync.Mutex
	settledEarly bool  // SettleEarly has settled the run, before its function returned
	earlyErr     error // the result of SettleEarly

	tx *transaction // of the function; nil if it runs in none
}

// remoteRun is a run over a store outside this process, with the same room as remoteLease.
type remoteRun struct {
	run
	remoteCalls
}

func newRun(ctx context.Context, l *Locker, key string, entry entryName, scope string, fingerprint []byte) *run {
	r := new(run)
	if !l.core.inProcess {
		both := new(remoteRun)
		r, both.lease.remote = &both.run, &both.remoteCalls
	}
	rec := &r.record
	rec.run, rec.label, rec.scope, rec.attempt = r, key, scope, 1
	e := &r.lease
	e.record, e.locker, e.entry, e.parent = rec, l, entry, ctx
	l.core.keys.Prepare(&e.local, (*holder)(e))
	// A copy: the local table and calls to the store may read it after Once has returned.
	rec.fingerprint = append(rec.room[:0], fingerprint...)
	return r
}

// runOf returns the run of ctx, nil if there is none.
func runOf(ctx context.Context) *run {
	r, _ := ctx.Value(runKey{}).(*run)
	return r
}

// unprotected runs fn under a lease that protects nothing. Attempt and Commit find no run. Callers that
// wait for it are refused at its end, because they would run fn again.
func (r *run) unprotected(fn func(ctx context.Context) ([]byte, error)) (receipt []byte, replayed bool, err error) {
	e := &r.lease
	defer func() {
		d := grantOf(e)
		d.fingerprint, d.unprotected = e.fingerprint(), true
		e.locker.core.keys.Share(&e.local, d)
		e.endBypassed()
	}()
	if receipt, err = fn(e.Context()); err != nil {
		return nil, false, err
	}
	return receipt, false, nil
}

// fail ends a run that failed with err.
func (r *run) fail(ctx context.Context, err error) error {
	settled, _ := r.earlyResult()
	freed := !settled && r.record.effects.free()
	if r.tx != nil {
		r.rollback(ctx)
	}
	switch {
	case settled:
		return nil
	case !freed:
		return r.settleFailure(ctx)
	default:
		r.shareFailure(err)
		return r.lease.giveBack(ctx)
	}
}

// shareFailure gives err to the calls of this process that wait for r. Otherwise each of them
// would repeat work that has just failed. It does not share an error that may concern only this
// caller: the caller's context has ended, the lease was lost, or err says so.
func (r *run) shareFailure(err error) {
	e := &r.lease
	if s, ok := errors.AsType[oncecall.Sharer](err); ok && !s.Shared() {
		return
	}
	if e.local.Contended() && e.parent.Err() == nil && e.lostError() == nil {
		e.locker.core.keys.Share(&e.local, &decision{failure: err})
	}
}

// settleFailure ends a failed run whose key is not freed: it settles the receipt of a
// possible effect, or an empty one.
func (r *run) settleFailure(ctx context.Context) error {
	receipt, elsewhere := r.record.effects.receipt()
	err := r.settle(ctx, receipt)
	if elsewhere {
		r.lease.locker.logPossibleEffect(ctx, &r.lease.identity)
	}
	return err
}

// succeed ends a run whose function has returned receipt, and returns the results of Once.
func (r *run) succeed(ctx context.Context, receipt []byte) ([]byte, bool, error) {
	if r.tx != nil {
		return r.commit(ctx, receipt)
	}
	settled, err := r.earlyResult()
	if !settled {
		err = r.settle(ctx, receipt)
	}
	if !errors.Is(err, ErrLost) {
		// The receipt is settled, or will be when the store answers.
		return receipt, false, nil
	}
	return r.successorReceipt(ctx, err)
}

// successorReceipt returns the receipt of the run that took over after this run lost its lease.
// All callers must get the same answer, so the successor's receipt replaces this run's.
func (r *run) successorReceipt(ctx context.Context, lost error) ([]byte, bool, error) {
	e := &r.lease
	l := e.locker
	var entry Entry
	err := l.askLogged(ctx, l.lastingTerms(), sendFunc(func(ctx context.Context) (err error) {
		entry, err = l.core.store.Get(ctx, string(e.entry))
		return err
	}))
	if err == nil && entry.State == Settled && sameRequest(r.record.fingerprint, entry.Fingerprint) {
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
	r.earlyMu.Lock()
	defer r.earlyMu.Unlock() // a second call waits for the outcome of the first
	if r.record.effects.wasFreed() {
		return errReleased
	}
	if !r.settledEarly {
		r.settledEarly = true
		r.earlyErr = r.settle(ctx, receipt)
	}
	return r.earlyErr
}

func (r *run) earlyResult() (settled bool, end error) {
	r.earlyMu.Lock()
	defer r.earlyMu.Unlock()
	return r.settledEarly, r.earlyErr
}

func (r *run) settle(ctx context.Context, receipt []byte) error {
	return r.lease.Settle(ctx, receipt, r.kept())
}

// Hold implements oncecall.Run. Unlike a possible effect elsewhere, the beginning of an answer is
// always confirmed by the store: a run whose key an operator has given to another run must not
// answer.
func (r *run) Hold(ctx context.Context, receipt []byte) error {
	if !r.record.effects.note(func() { r.record.effects.begun, r.record.effects.failedReceipt = true, receipt }) {
		return errReleased
	}
	err := r.noteInStore(ctx)
	if err != nil && !errors.Is(err, ErrLost) && !r.lease.locker.cfg.rerun {
		return nil // a crash does not free the key: abandoned work is not run again
	}
	return err
}

// kept returns how long the receipt of r is kept. It is not forgotten before the steps of r: a new
// submission with the same key must not find them done.
func (r *run) kept() time.Duration {
	if r.record.effects.hasSteps() {
		return r.lease.locker.cfg.stepKeep()
	}
	return r.lease.locker.cfg.keep
}

// InTransaction implements oncecall.Run.
func (r *run) InTransaction() bool { return r.tx != nil }

var errEarly = errors.New("lock: nothing can be settled before the work's transaction is")

// Committed implements oncecall.Run.
func (r *run) Committed() bool { return r.record.effects.wasCommitted() }

// NotePossibleEffect implements oncecall.Run.
func (r *run) NotePossibleEffect(ctx context.Context, receipt []byte) error {
	if settled, _ := r.earlyResult(); settled {
		return nil // the key will not be freed
	}
	noted, f := false, &r.record.effects
	err := r.note(ctx, func() {
		noted, f.possibleEffects = true, f.possibleEffects+1
		if !f.begun {
			f.failedReceipt = receipt
		}
	})
	if err != nil && noted {
		r.NoteNoEffect()
	}
	return err
}

// NoteNoEffect implements oncecall.Run.
func (r *run) NoteNoEffect() { r.record.effects.noteNone() }

// note calls mark to note an effect that has happened, or may have happened. If a crash would
// otherwise free the key, it also notes the effect in the store.
func (r *run) note(ctx context.Context, mark func()) error {
	if !r.record.effects.note(mark) {
		return errReleased
	}
	if cfg := &r.lease.locker.cfg; !cfg.rerun && !cfg.inTx {
		return r.lease.lostError() // a crash does not free the key: abandoned work is not run again
	}
	return r.noteInStore(ctx)
}

// noteInStore renews the entry so that a crash does not free the key.
func (r *run) noteInStore(ctx context.Context) error {
	e := &r.lease
	l := e.locker
	if err := e.lostError(); err != nil {
		return err
	}
	hold := l.cfg.keep
	if !l.cfg.rerun {
		hold = max(e.withinRun(e.claim.left(l.cfg.lease, clock.Now())), time.Millisecond) // only the linger has to change
	}
	renew := &renewRequest{store: l.core.store, key: string(e.entry), claim: e.claimOf(hold)}
	err := l.askLogged(ctx, l.lastingTerms(), renew)
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
