package redisstore

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime/debug"
	"sync/atomic"
	"time"
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
		r := result{err: notApplied(kind(errUnsettled), errUnsettled)}
		defer func() {
			if p := recover(); p != nil {
				err := hookPanic(p)
				r.err = notApplied(kind(err), err)
			}
			done <- r
		}()
		r.value, r.err = call()
	}()
	select {
	case r := <-done:
		return r.value, r.err
	case <-ctx.Done():
		return value, notApplied("context", ctx.Err())
	}
}

var (
	errPanicked  = errors.New("panic in a hook of the client")
	errUnsettled = errors.New("a hook of the client did not return") // it has ended its goroutine
)

var panicLogged atomic.Int64 // when a panic last was, in Unix nanoseconds

// hookPanic logs what a hook of the client has panicked with, and makes an error
// of it. It is for goroutines whose panic would end the process.
func hookPanic(p any) error {
	err := fmt.Errorf("%w: %v", errPanicked, p)
	now, last := time.Now().UnixNano(), panicLogged.Load()
	if time.Duration(now-last) >= time.Minute && panicLogged.CompareAndSwap(last, now) {
		slog.Default().Error("redisstore: "+err.Error()+"; others are not logged for a minute", "stack", string(debug.Stack()))
	}
	return err
}
