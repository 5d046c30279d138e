package lock

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"slices"
	"time"

	"github.com/httplatch/httplatch/internal/keytext"
	"github.com/httplatch/httplatch/internal/requestinfo"
	"github.com/httplatch/httplatch/internal/submission"
	"github.com/httplatch/httplatch/lock/internal/send"
	"github.com/httplatch/httplatch/lock/internal/validity"
)

const (
	maxStepName   = 128     // bytes: the name is part of a key in the store
	maxStepResult = 1 << 20 // bytes
	stepFormat    = 1       // the first byte of a step's receipt; the place of the step and the result follow
)

// Step runs fn once for the submission whose work runs in ctx ([Locker.Once], middleware.Idempotent), keeps its
// result in the store, and returns it. Later attempts, in any process, get the same bytes, and do not run fn.
//
// fn runs again in a later attempt or call if it has failed, if its process vanished before the result was kept,
// or if the store has not confirmed the result. So fn makes one call to another service, with the same key in
// each run, as middleware.Step describes. Write rows of a transaction of [WithTransaction] outside of steps: a
// step stays when they are rolled back.
//
// Work goes on where it stopped after a failure, which frees its key, and after the end of its process with
// [WithTransaction] or [WithRerunAbandoned]. Without either, repeats are refused then, and the first Step logs so.
//
// name has 1 to 128 bytes and no secret, as operators see it. It stands for one step: in a loop, put the item
// into it ("refund/7"), even if each item has its own Once: inside a handler, keys of calls are derived from its
// request and the name. Do not rename a step while submissions may be unfinished. A result has at most 1 MiB. It
// is kept for WithKeep, WithMaxHold and WithLease together, and so is the receipt of the work: no step is
// forgotten before its submission, unless attempts go on for longer than WithKeep. A step costs two calls of the
// store, one if it was done, and three if it was begun before.
//
// Steps with different names may run at the same time. With an error, there is no result. It is or matches:
//
//   - The error of fn, unchanged.
//   - [ErrUnavailable] if the store did not serve a call within the budget, or [ErrFull] if it has no room. The
//     text says whether fn has run. Fail with an answer that is not kept, such as 503.
//   - [ErrLost] if the lease of the work is over: another attempt may run.
//   - Another error, and fn was not run, outside of Once, behind middleware.Dedupe, in work that runs
//     unprotected, after the answer was settled, for a name of another length or of another step of this
//     attempt, and for a record of a newer version. And another one for a result that is too long.
func Step(ctx context.Context, name string, fn func(ctx context.Context) (result []byte, err error)) (result []byte, err error) {
	r := runOf(ctx)
	switch {
	case r == nil:
		return nil, errors.New("lock: a Step outside of Locker.Once and Idempotent, or in work that runs unprotected: there is no submission that it could belong to")
	case name == "" || len(name) > maxStepName:
		return nil, fmt.Errorf("lock: the name of a Step has %d bytes, and needs 1 to %d", len(name), maxStepName)
	case requestinfo.Guard(r.lease.owner) != "" && submission.Of(ctx) != nil && submission.Of(ctx).ID == "":
		return nil, errors.New("lock: a Step behind Dedupe: its requests have no key, and tomorrow's equal request would find the step done; use Idempotent")
	}
	f, place := &r.effects, 0
	f.note(func() {
		if !slices.Contains(f.steps, name) {
			f.steps = append(f.steps, name)
			place = len(f.steps)
		}
	})
	if place == 0 {
		return nil, fmt.Errorf("lock: a second Step %q in one attempt, or one after its end: give each step its own name, such as item/1 and item/2", name)
	}
	err = errNotReturned // fn may panic
	defer func() {
		if err != nil {
			f.note(func() { f.steps[place-1] = "" }) // it may run again
		}
	}()
	s := step{run: r, name: name, place: place, key: keytext.Step(r.lease.entry, name)}
	return s.do(ctx, fn)
}

// step is one call of [Step]. Its record has a key of its own: it is claimed before the function runs, and
// settled with the result. Neither a lease nor the caller's clock decides who may write the record, but its
// token: an attempt that finds the claim of an earlier one replaces the token, in one atomic step, and from
// then on the earlier one cannot settle.
type step struct {
	run   *Run
	name  string
	place int    // among the steps of the attempt, from 1
	key   string // in the store
}

func (s *step) do(ctx context.Context, fn func(ctx context.Context) ([]byte, error)) (result []byte, err error) {
	e, l := &s.run.lease, s.run.lease.locker
	if !l.cfg.rerun && !l.cfg.inTx {
		l.stepHint.Do(func() {
			l.log(ctx, slog.LevelWarn, "lock: work has steps, and is not run again if its process vanishes", e,
				attrDo("Set WithRerunAbandoned, so that the next request goes on where the work stopped. Without it, repeats are refused for WithKeep."))
		})
	}
	c := Claim{
		Token: l.core.tokens.next(), Attempt: e.run.attempt, Owner: e.owner, Scope: e.run.scope,
		Lease: l.cfg.lease, Linger: l.cfg.stepKeep() - l.cfg.lease, // it ends before the receipt of its submission: see Unfinished
	}
	if requestinfo.Guard(e.owner) == "" { // without a guard, operators see the key that was given to Once
		about := requestinfo.Request{Began: e.claim.grantedAt.Wall(), Label: e.run.label}
		c.Owner = string(about.AppendTo([]byte(e.owner)))
	}
	if of := submission.Of(ctx); of != nil {
		key, _ := of.Derive(s.name)
		c.Fingerprint = []byte(key) // for operators, who ask the other service for it
	}
	found, err := s.claim(ctx, &c)
	if err != nil {
		return nil, err
	}
	if found.State == Settled {
		_, result, err = readStep(found.Receipt)
		return result, err
	}
	if result, err = fn(submission.WithStep(ctx, s.name)); err != nil {
		return nil, err
	}
	if len(result) > maxStepResult {
		return nil, fmt.Errorf("lock: the Step %q has run, and its result of %d bytes is not kept, at most %d are: "+
			"return only what later steps need; it runs again", s.name, len(result), maxStepResult)
	}
	receipt := append(binary.AppendUvarint([]byte{stepFormat}, uint64(s.place)), result...) //nolint:gosec // it is at least 1
	settle := call{name: callSettle, key: s.key, claim: c, receipt: receipt, keep: l.cfg.stepKeep()}
	if err := s.ask(ctx, send.Terms{Budget: l.cfg.budget, Lasting: true}, &settle); err != nil {
		return nil, fmt.Errorf("lock: the Step %q has run, and its result is not known to be kept: if it is not, the step runs again: %w", s.name, err)
	}
	if !settle.ok {
		return nil, &loss{"taken", fmt.Sprintf("the Step %q has run, and its result was not kept, because a later attempt has begun it", s.name), ""}
	}
	return result, s.stillRuns()
}

// claim claims the record of the step. The entry that it returns is Settled if the step was done, and
// otherwise belongs to c.Token.
//
// Order of events: the run is looked at after an entry of another token was found, and before
// that token is replaced. If the lease of the run is valid then, by its own clock, no later attempt has
// begun, so the token belongs to an earlier attempt, or to an earlier call of this one. A later
// attempt can begin between the look and the replacement. It has then replaced the token itself, and
// nothing is replaced here, or it finds the token of c, and replaces that.
func (s *step) claim(ctx context.Context, c *Claim) (found Entry, err error) {
	l := s.run.lease.locker
	for range maxRounds {
		if err := s.stillRuns(); err != nil {
			return Entry{}, err
		}
		request := call{name: callClaim, key: s.key, claim: *c}
		if err := s.ask(ctx, send.Terms{Budget: l.cfg.budget}, &request); err != nil {
			return Entry{}, fmt.Errorf("lock: the Step %q was not run: %w", s.name, err)
		}
		found = request.entry
		if found.State == Settled || found.Token == c.Token {
			return found, nil
		}
		c.Replaces, c.ReplacesHeld = found.Token, found.State != Free
	}
	return Entry{}, fmt.Errorf("%w: the Step %q was not run: its record changes, or the store does not know Claim.ReplacesHeld", ErrUnavailable, s.name)
}

// ask makes a call to the store, and reports its failure as a step: a failed claim is an outcome of the request.
func (s *step) ask(ctx context.Context, terms send.Terms, c *call) error {
	l, began := s.run.lease.locker, time.Now()
	err := l.call(ctx, terms, c)
	l.emitFailed(ctx, &s.run.lease, callStep, time.Since(began), err)
	return err
}

// stillRuns returns an error unless the run has its lease and no answer.
func (s *step) stillRuns() error {
	s.run.lease.checkValidity()
	switch valid := s.run.lease.validity.State(); {
	case valid.Lost != nil:
		return fmt.Errorf("lock: the Step %q has no result: %w", s.name, valid.Lost)
	case valid.Phase != validity.Holding:
		return fmt.Errorf("lock: the Step %q came after the answer of its submission: make the steps first", s.name)
	}
	return nil
}

// readStep returns the last place for an entry without a result.
func readStep(receipt []byte) (place uint64, result []byte, err error) {
	place, n := binary.Uvarint(receipt[min(1, len(receipt)):])
	if n <= 0 || receipt[0] != stepFormat {
		return math.MaxUint64, nil, fmt.Errorf("lock: the record of the step was not written by this version: %w", errors.ErrUnsupported)
	}
	return place, receipt[1+n:], nil
}
