package faults_test

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/httplatch/httplatch/lock"
)

// soon is patience with everything that has no other bound. It is far from
// the lease after which every key frees itself.
const soon = 25 * time.Second

// process is the locker of a separate process.
func process(t *testing.T, store lock.Store, opts ...lock.Option) *lock.Locker {
	t.Helper()
	return locker(t, store, append(opts, lock.WithLease(time.Minute))...)
}

// serves acquires key, sooner or later, and gives it back.
func serves(t *testing.T, l *lock.Locker, key string) {
	t.Helper()
	until(t, func() bool {
		lease, err := l.Acquire(t.Context(), key)
		if err == nil {
			release(t, lease)
		}
		return err == nil
	})
}

func isUnknown(err error) bool { return errors.Is(err, lock.ErrUnknown) }

// until polls for a condition that has no other bound.
func until(t *testing.T, condition func() bool) {
	t.Helper()
	for deadline := time.Now().Add(soon); !condition(); time.Sleep(5 * time.Millisecond) {
		require.True(t, time.Now().Before(deadline), "still not so after %v", soon)
	}
}

// again repeats a call while the store is unavailable, each time within bound.
// After refused dials go-redis does not dial again for up to a second, whatever
// the server does.
func again(t *testing.T, call func() error) (err error) {
	t.Helper()
	until(t, func() bool {
		late := inTime(func() { err = call() })
		require.NoError(t, late)
		return !errors.Is(err, lock.ErrUnavailable)
	})
	return err
}

// acquired is a lease on key, which is free. It has been renewed, so that it outlives faults
// which are longer than a first lease.
func acquired(t *testing.T, l *lock.Locker, key string) *lock.Lease {
	t.Helper()
	lease := claimed(t, l, key)
	require.NoError(t, again(t, func() error { return lease.Extend(t.Context()) }), key)
	return lease
}

// claimed is acquired without the renewal.
func claimed(t *testing.T, l *lock.Locker, key string) (lease *lock.Lease) {
	t.Helper()
	require.NoError(t, again(t, func() (err error) {
		lease, err = l.Acquire(t.Context(), key)
		return err
	}), key)
	t.Cleanup(func() { _ = lease.Release(context.WithoutCancel(t.Context())) }) // or the locker waits for a test that failed
	return lease
}

// refused requires that key has another holder.
func refused(t *testing.T, l *lock.Locker, key string) {
	t.Helper()
	require.ErrorIs(t, again(t, func() error {
		_, err := l.Acquire(t.Context(), key)
		return err
	}), lock.ErrHeld, key)
}

// lives requires that a lease is one at the server too, and ends it.
func lives(t *testing.T, lease *lock.Lease) {
	t.Helper()
	require.NoError(t, again(t, func() error { return lease.Extend(t.Context()) }))
	require.NoError(t, lease.Context().Err())
	release(t, lease)
}

// release gives back what is still held. A busy machine may have to repeat it.
func release(t *testing.T, lease *lock.Lease) {
	t.Helper()
	if err := lease.Release(t.Context()); !errors.Is(err, lock.ErrUnavailable) {
		require.NoError(t, err)
	}
}

// bound is the longest time of a call that takes its whole budget, on a machine that is busy with
// other things. The faults last for longer.
const bound = budget + 2500*time.Millisecond

// timers adds up by how much the timers of this process are late. A machine that
// does not run us for seconds is no failure of the code that is measured.
type timers struct {
	late       atomic.Int64
	quit, done chan struct{}
}

func watchTimers() *timers {
	const beat = 20 * time.Millisecond
	w := &timers{quit: make(chan struct{}), done: make(chan struct{})}
	go func() {
		defer close(w.done)
		timer := time.NewTimer(beat)
		defer timer.Stop()
		for last := time.Now(); ; {
			select {
			case <-w.quit:
				w.late.Add(int64(max(time.Since(last)-beat, 0)))
				return
			case <-timer.C:
			}
			w.late.Add(int64(time.Since(last) - beat))
			last = time.Now()
			timer.Reset(beat)
		}
	}()
	return w
}

// sum returns the delay of all timers so far.
func (w *timers) sum() time.Duration { return time.Duration(w.late.Load()) }

func (w *timers) stop() {
	close(w.quit)
	<-w.done
}

// lateness watches timers until stop is called.
func lateness() (stop func() time.Duration) {
	w := watchTimers()
	return func() time.Duration {
		w.stop()
		return w.sum()
	}
}

// inTime reports if a call takes longer than bound.
func inTime(call func()) error {
	stop := lateness()
	began := time.Now()
	call()
	took := time.Since(began)
	if late := stop(); took > bound+late {
		return fmt.Errorf("took %v, a budget is %v", took, budget)
	}
	return nil
}
