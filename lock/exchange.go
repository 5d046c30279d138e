package lock

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
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

// exchange sends one call until it is answered or the budget is over.
//
// It relies on every call of a Store being the same when it is sent twice for
// one token, and so sends again, at once when a send failed and after a third
// of the budget when it merely has not been answered: a lost reply and a lost
// request look alike, and the repetition finds out which it was.
//
// fl, if not nil, counts the sends that have not returned.
func exchange[T any](ctx context.Context, c *core, budget time.Duration, fl *flight, call func(context.Context) (T, error)) reply[T] {
	return exchangeWith(ctx, c, budget, maxSends, fl, call)
}

// exchangeWith is exchange with at most so many sends. With one it returns when
// that has failed: its caller comes back by itself, and later.
func exchangeWith[T any](ctx context.Context, c *core, budget time.Duration, most int, fl *flight, call func(context.Context) (T, error)) reply[T] {
	if c.prompt {
		return direct(call(ctx))
	}
	x := outgoing{core: c, parent: ctx, budget: budget, most: most, flight: fl}
	defer x.abandon()
	for try, more := x.next(); more; try, more = x.next() {
		value, err := call(try)
		if x.back(try, err) {
			return reply[T]{value: value, err: x.err, unanswered: x.unanswered}
		}
	}
	return hedge(x, call)
}

// direct is the reply of a store whose calls never wait for anything.
func direct[T any](value T, err error) reply[T] {
	return reply[T]{value: value, err: verdict(err, false)}
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
