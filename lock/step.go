package lock

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"time"

	"github.com/httplatch/httplatch/internal/keytext"
	"github.com/httplatch/httplatch/internal/requestinfo"
	"github.com/httplatch/httplatch/internal/submission"
	"github.com/httplatch/httplatch/lock/internal/send"
	"github.com/httplatch/httplatch/lock/internal/validity"
)

// Limits of [Step].
const (
	maxStepName   = 128     // bytes: the name is part of a key in the store
	maxStepResult = 1 << 20 // bytes
)

// Step runs fn once for the submission whose work runs in ctx ([Locker.Once], middleware.Idempotent),
// and returns its result. The result is kept in the store. Later attempts of the submission, in any
// process, get the same bytes, and do not run fn:
//
//	charge, err := lock.Step(ctx, "charge", func(ctx context.Context) ([]byte, error) {
//		return provider.Charge(ctx, amount)
//	})
//
// fn runs again in a later attempt, or in a later call, if it has failed, if its process vanished
// before the result was kept, or if the store has not confirmed the result. So fn makes one call to
// another service, with the same key in each run: in middleware.Idempotent with WithKeySecret, the
// requests of client.Transport in fn have the key that middleware.DeriveKey returns for name. Write rows of
// a transaction of [WithTransaction] outside of steps: a step stays when they are rolled back.
//
// Work goes on where it stopped after a failure, which frees its key, after the end of its process
// with [WithTransaction], and with [WithRerunAbandoned]. A Locker without both refuses repeats after
// the end of a process, and its first Step logs so.
//
// name has 1 to 128 bytes, and stands for one step: in a loop, put the item into it ("refund/7"), even if each
// item has its own Once: inside a handler, keys of calls are derived from its request and the name. Operators
// see it, so it has no secret. Do not rename a step while submissions may be unfinished.
// A result has at most 1 MiB. It is kept for WithKeep, WithMaxHold and WithLease together, and so is the
// receipt of work that has a step: a step is never forgotten before the submission that [Attempt]
// belongs to, unless attempts go on for longer than WithKeep. A step costs two calls of the store, one
// if it was done, and three if it was begun before.
//
// Steps with different names may run at the same time. If err is not nil, there is no result:
//
//   - The error of fn, unchanged.
//   - An error that matches [ErrUnavailable] if the store did not serve a call within the budget, or
//     [ErrFull] if it has no room. The text says whether fn has run. Fail with an answer that is not
//     kept, such as 503: the next attempt finds the result, or runs fn again.
//   - An error that matches [ErrLost] if the lease of the work is over: another attempt may run.
//   - Another error, and fn was not run, outside of Once, behind middleware.Dedupe, in work that runs
//     unprotected, after the answer was settled, and with a name of another length, or of another step of
//     this attempt. The same if the result is too long, or its record was written by a newer version.
func Step(ctx context.Context, name string, fn func(ctx context.Context) (result []byte, err error)) (result []byte, err error) {
	r := runOf(ctx)
	switch {
	case r == nil:
		return nil, errors.New("lock: a Step outside of Locker.Once and Idempotent, or in work that runs unprotected: there is no submission that it could belong to")
	case name == "" || len(name) > maxStepName:
		return nil, fmt.Errorf("lock: the name of a Step has %d bytes, and needs 1 to %d", len(name), maxStepName)
	case r.record.owner != "" && submission.Of(ctx) != nil && submission.Of(ctx).ID == "":
		return nil, errors.New("lock: a Step behind Dedupe: its requests have no key, and tomorrow's equal request would find the step done; use Idempotent")
	}
	s := step{run: r, name: name, key: keytext.Step(string(r.lease.entry), name), place: r.record.effects.beginStep(name)}
	if s.place == 0 {
		return nil, fmt.Errorf("lock: a second Step %q in one attempt: give each step its own name, such as item/1 and item/2", name)
	}
	err = errNotReturned // fn may panic
	defer func() {
		if err != nil {
			r.record.effects.failStep(name)
		}
	}()
	return s.do(ctx, fn)
}

// step is one call of [Step].
//
// Its record has a key of its own: it is claimed before the function runs, and settled with the
// result. Neither a lease nor the caller's clock decides who may write the record, but its token. An
// attempt that finds the claim of an earlier one replaces the token, in one atomic step, and from then on
// the earlier one cannot settle. And an attempt whose lease is over replaces no token: see claim.
type step struct {
	run   *Run
	name  string
	key   string // in the store
	place int    // among the steps of the attempt, from 1
}

func (s *step) do(ctx context.Context, fn func(ctx context.Context) ([]byte, error)) (result []byte, err error) {
	r, l := s.run, s.run.lease.locker
	if !l.cfg.rerun && !l.cfg.inTx {
		l.stepHint.Do(func() { l.logStepNotResumed(ctx, &r.lease.identity) })
	}
	c := Claim{
		Token: l.core.tokens.Next(), Attempt: r.record.attempt, Owner: s.owner(), Scope: r.record.scope,
		Lease: l.cfg.lease, Linger: l.cfg.stepKeep() - l.cfg.lease, // it ends before the receipt of its submission: see Unfinished
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
	result, err = fn(submission.WithStep(ctx, s.name))
	switch {
	case err != nil:
		return nil, err
	case len(result) > maxStepResult:
		return nil, fmt.Errorf("lock: the Step %q has run, and its result of %d bytes is not kept, at most %d are: "+
			"return only what later steps need; it runs again", s.name, len(result), maxStepResult)
	}
	if err := s.settle(ctx, &c, result); err != nil {
		return nil, err
	}
	return result, r.stillRuns(s.name)
}

// owner describes the step for operators: as the run, and without a guard by the key given to Once.
func (s *step) owner() string {
	e := &s.run.lease
	if e.record.owner != "" {
		return e.record.owner
	}
	about := requestinfo.Request{Began: e.claim.grantedAt.Wall(), Label: e.record.label}
	return string(about.AppendTo([]byte(e.owner())))
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
		if err := s.run.stillRuns(s.name); err != nil {
			return Entry{}, err
		}
		request := call{name: callClaim, key: s.key, claim: *c}
		if err := s.ask(ctx, send.Terms{Budget: l.cfg.budget}, &request); err != nil {
			return Entry{}, fmt.Errorf("lock: the Step %q was not run: %w", s.name, err)
		}
		found = request.entry
		switch {
		case found.State == Settled, found.State != Free && found.Token == c.Token:
			return found, nil
		case found.State == Free:
			c.Replaces, c.ReplacesHeld = "", false
		default:
			c.Replaces, c.ReplacesHeld = found.Token, true
		}
	}
	return Entry{}, fmt.Errorf("%w: the Step %q was not run: its record changes, or the store does not know Claim.ReplacesHeld", ErrUnavailable, s.name)
}

// settle keeps the result.
func (s *step) settle(ctx context.Context, c *Claim, result []byte) error {
	l := s.run.lease.locker
	receipt := append(binary.AppendUvarint([]byte{stepFormat}, uint64(s.place)), result...) //nolint:gosec // it is at least 1
	request := call{name: callSettle, key: s.key, claim: *c, receipt: receipt, keep: l.cfg.stepKeep()}
	err := s.ask(ctx, l.lastingTerms(), &request)
	switch {
	case err != nil:
		return fmt.Errorf("lock: the Step %q has run, and its result is not known to be kept: if it is not, the step runs again: %w", s.name, err)
	case !request.ok:
		return &loss{"taken", fmt.Sprintf("the Step %q has run, and its result was not kept, because a later attempt has begun it", s.name), ""}
	}
	return nil
}

// ask makes a call to the store, and reports its failure as a step: a failed claim is an outcome of the request.
func (s *step) ask(ctx context.Context, terms send.Terms, c *call) error {
	l, began := s.run.lease.locker, time.Now()
	err := l.call(ctx, terms, c)
	if err != nil {
		l.emitFailed(ctx, &s.run.lease.identity, callStep, time.Since(began), err)
	}
	return err
}

// stillRuns returns an error unless r has its lease and no answer.
func (r *Run) stillRuns(name string) error {
	r.lease.checkValidity()
	switch valid := r.lease.validity.State(); {
	case valid.Lost != nil:
		return fmt.Errorf("lock: the Step %q has no result: %w", name, valid.Lost)
	case valid.Phase != validity.Holding:
		return fmt.Errorf("lock: the Step %q came after the answer of its submission: make the steps first", name)
	}
	return nil
}

// stepFormat is the first byte of a step's receipt. The place of the step and the result follow.
const stepFormat = 1

var errStepRecord = fmt.Errorf("lock: the record of the step was not written by this version: %w", errors.ErrUnsupported)

func readStep(receipt []byte) (place uint64, result []byte, err error) {
	if len(receipt) > 1 && receipt[0] == stepFormat {
		if place, n := binary.Uvarint(receipt[1:]); n > 0 {
			return place, receipt[1+n:], nil
		}
	}
	return 0, nil, errStepRecord
}
