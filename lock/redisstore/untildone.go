package redisstore

import (
	"context"

	"github.com/httplatch/httplatch/lock/redisstore/internal/failure"
)

// untilDone makes a call on its own goroutine, and returns when ctx ends, whatever the client, its
// hooks and the server do. If ctx ends first, or a hook panics, the error says that the call was
// not applied. So a call that writes must not return the error unchanged.
func untilDone[T any](ctx context.Context, call func() (T, error)) (value T, err error) {
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
