package lock

import (
	"cmp"
	"context"
	"errors"
	"sync"
	"time"

	"github.com/httplatch/httplatch/internal/about"
	"github.com/httplatch/httplatch/internal/keytext"
	"github.com/httplatch/httplatch/internal/oncecall"
	"github.com/httplatch/httplatch/internal/unwind"
	"github.com/httplatch/httplatch/lock/event"
	"github.com/httplatch/httplatch/lock/internal/clock"
)

// Once runs fn unless another call has done so within [WithKeep], and returns the
// receipt of that call. replayed says that fn was not run by this one. Receipts
// are kept as they are, so all callers get equal bytes.
//
// fingerprint says what the work is: a call with the same key and another
// fingerprint is refused with [ErrMismatch], while the first runs and after it.
// An empty one equals all.
//
// If fn returns an error, panics or exits its goroutine, the key is free for
// the next call, unless fn has called [Commit]: then an empty receipt is left.
// (After a takeover, which a lease later another call may repeat.) Calls of this
// process that wait for fn by then ([WithWait]) do not run: they return fn's error,
// with replayed set, or one that says that fn did not return. If the context of
// fn's own caller has ended, and was not detached, the next of them runs.
// If the process dies, the outcome is unknown: later calls are refused with
// [ErrAbandoned] until WithKeep is over, or run again if [WithRerunAbandoned]
// says so.
//
// [WithTransaction] has fn run in a transaction of the store, and says what is different.
//
// The other errors are those of [Locker.Acquire]. One that matches [ErrLost]
// says that fn was run, but lost its lease to another call, which has left no receipt
// yet. A receipt that the store does not take is returned all the same, and
// settled in the background; one that it has no room for is returned to this caller
// only, and an empty receipt to those that follow. What ran unprotected
// ([WithFailOpen]) leaves none: the next call runs fn again. Over a store that keeps no
// receipts, such as a quorum, the error matches errors.ErrUnsupported, and fn is not run.
func (l *Locker) Once(ctx context.Context, key string, fingerprint []byte,
	fn func(ctx context.Context) (receipt []byte, err error),
) (receipt []byte, replayed bool, err error) {
	return l.once(ctx, nil, key, fingerprint, fn)
}

var _ = oncecall.Provide(func(ctx context.Context, locker any, call *oncecall.Call, key string, fingerprint []byte) ([]byte, bool, error) {
	return locker.(*Locker).once(ctx, call, key, fingerprint, call.Work.Run) //nolint:errcheck,forcetypeassert // it gets no other
})

// once is Once with call, which may be nil.
func (l *Locker) once(ctx context.Context, call *oncecall.Call, key string, fingerprint []byte,
	fn func(ctx context.Context) (receipt []byte, err error),
) (receipt []byte, replayed bool, err error) {
	if err := validKey(key); err != nil {
		return nil, false, err
	}
	if err := l.core.noReceipts; err != nil {
		return nil, false, err
	}
	entry := entryName(keytext.Record(key))
	if receipt, ok := l.found(ctx, call, key, entry, fingerprint); ok {
		return receipt, true, nil
	}
	r := newRun(ctx, l, key, entry, call.ScopeOf(), fingerprint)
	e := &r.lease
	e.observed = l.observation(ctx)
	r.record.owner = call.Owner(e.owner())
	if err := l.acquire(ctx, e); err != nil {
		return instead(err)
	}
	if e.local.Bypassed() {
		return r.unprotected(fn)
	}
	call.Begin(r)

	unwind.Guard(func() {
		var work context.Context
		if work, err = r.begin(ctx); err == nil {
			receipt, err = fn(work)
		}
	}, func() { _ = r.fail(ctx, errNotReturned) })
	if err != nil {
		undone := r.record.forgottenOnCrash(l.cfg.inTx)
		if end := r.fail(ctx, err); errors.Is(end, ErrLost) {
			err = errors.Join(err, end)
			if undone {
				return r.winner(ctx, &oncecall.UndoneError{Err: err})
			}
		}
		return nil, false, err
	}
	return r.succeed(ctx, receipt)
}

// instead is what Once returns that runs nothing, because acquire has ended with err.
func instead(err error) (receipt []byte, replayed bool, _ error) {
	if failed, ok := errors.AsType[*failedRunError](err); ok {
		return nil, true, failed.err
	}
	if errors.Is(err, errReplay) {
		refused, _ := errors.AsType[*RefusedError](err)
		return refused.Entry.Receipt, true, nil
	}
	return nil, false, err
}

var errNotReturned = errors.New("lock: the function that this call waited for panicked, or ended its goroutine")

// Attempt returns 1 in the first execution of a function under [Locker.Once],
// more in one that took over from a holder that had vanished, and 0 outside.
func Attempt(ctx context.Context) int {
	r := runOf(ctx)
	if r == nil {
		return 0
	}
	return r.record.attempt
}

// Commit says that the effect has happened: from here on, an error, a panic or
// a crash of the function that [Locker.Once] runs does not free the key any
// more. Callers that wait for the answer go on waiting. After a crash, others
// are refused with [ErrAbandoned], or with WithRerunAbandoned, where a holder that
// works and one that has vanished look the same, with [ErrHeld], until WithKeep is
// over.
//
// An error that matches [ErrLost] says that the lease was over already. One
// that matches [ErrUnavailable] is possible with [WithRerunAbandoned] and
// [WithTransaction] only: the store has not taken note, so a crash would still let the
// work run again.
// Outside of Once it returns an error and does nothing.
func Commit(ctx context.Context) error {
	r := runOf(ctx)
	if r == nil {
		return errors.New("lock: Commit outside of Locker.Once")
	}
	return r.note(ctx, func() { r.record.effects.committed = true })
}

// found looks for the receipt that acquire would end with, before anything is
// begun: most of what a replay costs is a run that never runs. ok is false if
// there may be none, and acquire finds out. A store that has to be waited for is
// not asked: its answer would cost a round trip more whenever there is none.
//
// No lease of this process has to be asked first. A record is settled once and
// stays that until its keep is over, so a lease that still has the key among the local keys
// is about to end.
func (l *Locker) found(ctx context.Context, call *oncecall.Call, label string, name entryName, fingerprint []byte) (receipt []byte, ok bool) {
	if !l.core.inProcess || l.cfg.origin != nil || ctx.Err() != nil || l.core.owners.Closed() {
		return nil, false
	}
	var began time.Time
	if l.observed() {
		began = time.Now()
	}
	entry, err := l.core.store.Get(ctx, string(name))
	if err != nil || entry.State != Settled || !sameRequest(fingerprint, entry.Fingerprint) {
		return nil, false
	}
	if l.observed() {
		l.announce(ctx, Event{
			Kind: event.Replayed, Name: cmp.Or(call.GuardName(), keytext.Name(label)), Key: label, Once: true, Attempt: 1,
			Took: time.Since(began), Owner: about.Process(entry.Owner),
		})
	}
	return entry.Receipt, true
}

// run is one execution of a function under Once, in one allocation.
type run struct {
	lease  Lease
	record record

	early   sync.Mutex
	settled bool  // before the function returned
	end     error // of that

	tx *transaction // that the function runs in; nil if it runs in none
}

// remoteRun is remoteLease for Once.
type remoteRun struct {
	run
	remote
}

func newRun(ctx context.Context, l *Locker, key string, entry entryName, scope string, fingerprint []byte) *run {
	r := new(run)
	if !l.core.inProcess {
		both := new(remoteRun)
		r, both.lease.remote = &both.run, &both.remote
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

// runOf returns the run that ctx is of, nil if there is none.
func runOf(ctx context.Context) *run {
	r, _ := ctx.Value(runKey{}).(*run)
	return r
}

// unprotected runs fn for r, whose lease protects nothing. There is no run that it
// could find, and none that others could wait for.
func (r *run) unprotected(fn func(ctx context.Context) ([]byte, error)) (receipt []byte, replayed bool, err error) {
	defer r.lease.endBypassed()
	if receipt, err = fn(r.lease.Context()); err != nil {
		return nil, false, err
	}
	return receipt, false, nil
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
		hold = max(e.claim.left(l.cfg.lease, clock.Now()), time.Millisecond) // it is the linger that is to be noted
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
