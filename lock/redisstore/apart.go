package redisstore

import (
	"context"

	"github.com/httplatch/httplatch/lock/redisstore/internal/failure"
)

// apart makes a call that changes nothing on a goroutine of its own. It returns
// when ctx has ended, whatever the client, its hooks and the server do: for
// callers other than a Locker, which has a timer of its own.
func apart[T any](ctx context.Context, call func() (T, error)) (value T, err error) {
	type result struct {
		value T
		err   error
	}
	done := make(chan result, 1)
	go func() {
		r := result{err: failure.NotApplied(failure.Kind(failure.ErrUnsettled), failure.ErrUnsettled)}
		defer func() {
			if p := recover(); p != nil {
				err := failure.OfHook(p)
				r.err = failure.NotApplied(failure.Kind(err), err)
			}
			done <- r
		}()
		r.value, r.err = call()
	}()
	select {
	case r := <-done:
		return r.value, r.err
	case <-ctx.Done():
		return value, failure.NotSent(ctx.Err())
	}
}
