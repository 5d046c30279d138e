package lock

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync/atomic"
	"time"
)

// maxSends bounds the sends of one exchange.
const maxSends = 8

// reply is how an exchange with the store ended.
type reply[T any] struct {
	value T
	err   error // nil: value is the store's answer

	// unanswered: at least one send got no answer. It may have been applied,
	// or may still be. An answer to another send does not change that.
	unanswered bool
}

// flight follows the store calls that carry a claim of one token. Until they
// have returned, their commands may still be written; how long they may still
// land counts from then.
type flight struct {
	under    atomic.Int32 // on their way
	returned atomic.Int64 // when the last one did, in ns of time.Since(base)
	minority minority     // of a quorum
}

// landed reports whether all of it has returned, and lag ago or more.
func (f *flight) landed(lag time.Duration) bool {
	return f.under.Load() == 0 && time.Since(base)-time.Duration(f.returned.Load()) >= lag
}

// exchange sends one call until it is answered or the budget is over.
//
// It relies on every call of a Store being the same when it is sent twice for
// one token, and so sends again, at once when a send failed and after a third
// of the budget when it merely has not been answered: a lost reply and a lost
// request look alike, and the repetition finds out which it was. An earlier
// send is not given up for that: on a slow network its answer may still be the
// first.
//
// It returns on its own timer, whatever the store does with its context. fl,
// if not nil, counts the sends that have not returned.
func exchange[T any](ctx context.Context, c *core, budget time.Duration, fl *flight, call func(context.Context) (T, error)) reply[T] {
	return exchangeWith(ctx, c, budget, maxSends, fl, call)
}

// exchangeWith is exchange with at most so many sends. With one it returns when
// that has failed: its caller comes back by itself, and later.
func exchangeWith[T any](ctx context.Context, c *core, budget time.Duration, most int, fl *flight, call func(context.Context) (T, error)) reply[T] {
	if c.prompt {
		return direct(call(ctx))
	}
	parent := ctx
	ctx, cancel := context.WithTimeout(parent, budget)
	defer cancel()
	ctx = handDown(ctx, c, fl)

	type answer struct {
		value T
		err   error
	}
	// Never blocks a send that nobody waits for any more. Pointers, since most of
	// the room is never used.
	answers := make(chan *answer, maxSends)
	send := func() {
		if fl != nil {
			fl.under.Add(1)
		}
		c.calls.enter()
		go func() {
			defer c.calls.leave()
			value, err := call(ctx)
			if fl != nil {
				fl.returned.Store(int64(time.Since(base)))
				fl.under.Add(-1)
			}
			answers <- &answer{value, err}
		}()
	}

	send()
	sends, inFlight, unanswered := 1, 1, false
	var cause error
	again := time.NewTimer(budget / 3)
	defer again.Stop()
	for {
		select {
		case a := <-answers:
			inFlight--
			if a.err == nil {
				return reply[T]{value: a.value, unanswered: unanswered || inFlight > 0}
			}
			if errors.Is(a.err, ErrFull) || errors.Is(a.err, errors.ErrUnsupported) {
				// An answer, and one that the same question will get again.
				unanswered = unanswered || inFlight > 0
				return reply[T]{err: verdict(a.err, unanswered), unanswered: unanswered}
			}
			cause = a.err
			if !errors.Is(a.err, ErrNotApplied) {
				unanswered = true
			}
			if most == 1 {
				return reply[T]{err: verdict(cause, unanswered), unanswered: unanswered}
			}
			again.Reset(pause(sends))
		case <-again.C:
			// A repetition that falls together with the deadline would be a
			// command that nobody waits for.
			if deadline, _ := ctx.Deadline(); sends < most && time.Until(deadline) > budget/20 {
				sends++
				inFlight++
				send()
				again.Reset(budget / 3)
			}
		case <-ctx.Done():
			unanswered = unanswered || inFlight > 0
			return reply[T]{err: verdict(expired(parent, budget, cause), unanswered), unanswered: unanswered}
		}
	}
}

// direct is the reply of a store whose calls never wait for anything.
func direct[T any](value T, err error) reply[T] {
	return reply[T]{value: value, err: verdict(err, false)}
}

// expired says why an exchange ended without an answer: cause is the last
// failure, nil if there was only silence.
func expired(parent context.Context, budget time.Duration, cause error) error {
	switch {
	case parent.Err() != nil:
		return context.Cause(parent)
	case cause != nil:
		return fmt.Errorf("no answer within %v, the last failure: %w", budget, cause)
	default:
		return silence(budget)
	}
}

// silence is a store that neither answered nor failed within a budget.
type silence time.Duration

func (s silence) Error() string { return fmt.Sprintf("no answer within %v", time.Duration(s)) }
func (silence) Class() string   { return "silence" }

// verdict turns the errors of an exchange into the one that callers see.
func verdict(err error, unanswered bool) error {
	switch {
	case err == nil:
		return nil
	case unanswered:
		return fmt.Errorf("%w: %w", ErrUnknown, err)
	case errors.Is(err, ErrUnavailable), errors.Is(err, errors.ErrUnsupported):
		return err
	default:
		return fmt.Errorf("%w: %w", ErrUnavailable, err)
	}
}

// pause is how long to wait after the nth send failed: 5 ms, doubling, the
// upper half of it by chance so that callers which failed together do not come
// back together.
func pause(sends int) time.Duration {
	d := 5 * time.Millisecond << (sends - 1)
	return d/2 + rand.N(d/2+1) //nolint:gosec // spreading retries needs no secrecy
}
