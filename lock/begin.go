package lock

import (
	"cmp"
	"context"
	"errors"
	"time"

	"github.com/httplatch/httplatch/internal/keytext"
	"github.com/httplatch/httplatch/internal/requestinfo"
	"github.com/httplatch/httplatch/lock/internal/clock"
	"github.com/httplatch/httplatch/lock/internal/send"
)

// Begin is the first half of [Locker.Once], for authors of guards: for work that is no function with
// a receipt, as a handler whose answer is settled before it has returned. Package middleware is
// made of it. s may be nil. Exactly one of the results is set:
//
//   - A run: the caller does the work in its Context, and ends it by [Run.Settle] or [Run.Fail]. A
//     deferred call of Fail also ends it after a panic, and does nothing after Settle. A run
//     without an end keeps its key for [WithMaxHold].
//
//   - An earlier entry: the work was done, and its Receipt is the result.
//
//   - An error, as for Once. It is a [*FailedRunError] if Begin has waited for a run that failed.
//
// For example:
//
//	run, earlier, err := locker.Begin(ctx, key, fingerprint, nil)
//	switch {
//	case err != nil:
//		return refusal(err)
//	case run == nil:
//		return earlier.Receipt
//	}
//	defer run.Fail(ctx, errPanicked)
//	receipt := work(run.Context())
//	receipt, _, err = run.Settle(ctx, receipt)
//
// With [WithFailOpen], the work of a run may be unprotected: [Attempt] of its Context is then 0, and
// [Run.Hold] and [Run.Ticket] return an error that matches [ErrUnavailable].
func (l *Locker) Begin(ctx context.Context, key string, fingerprint []byte, s *Submission) (run *Run, earlier Entry, err error) {
	if err := validKey(key, true); err != nil {
		return nil, Entry{}, err
	}
	if err := l.core.about.NoReceipts; err != nil {
		return nil, Entry{}, err
	}
	if s == nil {
		s = &Submission{}
	}
	name := keytext.Record(key)
	if l.findReceipt(ctx, s, key, name, fingerprint, &earlier) {
		return nil, earlier, nil
	}
	r := &Run{label: key, scope: s.Scope, attempt: 1}
	e := r.lease.init(ctx, l, name)
	if e.run = r; s.Guard != "" { // operators find its request in the owner of the entry
		about := requestinfo.Request{Guard: s.Guard, Method: s.Method, Path: s.Path, Label: s.Label, Began: time.Now()}
		e.owner = string(about.AppendTo(append(make([]byte, 0, 256), e.owner...)))
	}
	// A copy: the local table and calls to the store may read it after Once has returned.
	r.fingerprint = append(r.room[:0], fingerprint...)
	wait := l.cfg.wait
	if !l.cfg.waitSet {
		wait = s.Wait
	}
	if err = l.acquire(ctx, e, acquireTerms{wait: wait}); err != nil {
		if !errors.Is(err, errReplay) {
			return nil, Entry{}, err
		}
		refused, _ := errors.AsType[*RefusedError](err)
		l.askLeft(ctx, s, name, &refused.Entry)
		return nil, refused.Entry, nil
	}
	if !l.cfg.inTx {
		return r, Entry{}, nil
	}
	if err = r.begin(ctx); err == nil {
		return r, Entry{}, nil
	}
	receipt, replayed, err := r.Fail(ctx, err)
	if replayed {
		return nil, Entry{Key: key, State: Settled, Receipt: receipt}, nil
	}
	return nil, Entry{}, err
}

// askLeft sets the time for which the receipt of earlier is still kept, if the caller asks for it.
// With some stores, the answer to a claim does not contain this time.
func (l *Locker) askLeft(ctx context.Context, s *Submission, name string, earlier *Entry) {
	if !s.AskLeft || earlier.Left != 0 {
		return
	}
	if now, err := l.read(ctx, name, true); err == nil && now.Token == earlier.Token {
		earlier.Left = now.Left
	}
}

// findReceipt looks for a receipt before a run is made, because a run that never starts would be
// most of the cost of a replay. If it returns false, there may still be a receipt, which acquire will
// find. findReceipt does not ask a store outside this process: where there is no receipt, that
// would cost one more round trip.
//
// findReceipt need not ask the local table first. A settled record stays settled until its keep
// is over, so a lease that still has the key is about to end.
func (l *Locker) findReceipt(ctx context.Context, s *Submission, key, name string, fingerprint []byte, entry *Entry) bool {
	if !l.core.inProcess || l.cfg.origin != nil || ctx.Err() != nil || l.core.closing.Err() != nil {
		return false
	}
	var began clock.Moment
	if len(l.cfg.observers) > 0 {
		began = clock.Now()
	}
	var err error
	defer send.Recover(&err) // of the store: there may still be a receipt
	*entry, err = l.core.store.Get(ctx, name)
	if err != nil || entry.State != Settled || !sameRequest(fingerprint, entry.Fingerprint) {
		return false
	}
	if len(l.cfg.observers) > 0 {
		l.Report(ctx, Event{
			Kind: EventReplayed, Name: cmp.Or(s.Guard, keytext.Name(key)), Key: key, Once: true, Attempt: 1,
			Took: began.Since(), Owner: requestinfo.Process(entry.Owner),
		})
	}
	entry.Key = key
	l.askLeft(ctx, s, name, entry)
	return true
}
