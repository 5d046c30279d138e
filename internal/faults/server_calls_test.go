package faults_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
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

// serves acquires key until it is granted, and gives it back. dead says that
// key has no live holder, so that a refusal is an error.
func serves(t *testing.T, l *lock.Locker, key string, calm time.Time, dead bool) error {
	t.Helper()
	for {
		lease, err := l.Acquire(t.Context(), key)
		if err == nil {
			if err = lease.Release(t.Context()); errors.Is(err, lock.ErrUnavailable) {
				err = nil // it follows
			}
			return err
		}
		switch {
		case dead && errors.Is(err, lock.ErrHeld):
			return fmt.Errorf("refused by a dead claim: %w", err)
		case time.Since(calm) > soon:
			return fmt.Errorf("still not served: %w", err)
		}
		time.Sleep(10 * time.Millisecond)
	}
}

// unavailable is nil for what a call has to end with when there is no server.
func unavailable(err error) error {
	if errors.Is(err, lock.ErrUnavailable) {
		return nil
	}
	return fmt.Errorf("not %q: %w", lock.ErrUnavailable.Error(), wrong(err))
}

func isUnknown(err error) bool { return errors.Is(err, lock.ErrUnknown) }

var errNone = errors.New("no error")

// wrong is err, or one that says that there is none.
func wrong(err error) error {
	if err == nil {
		return errNone
	}
	return err
}

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

// abreast runs subtests at the same time, however few processors there are: all
// they do is wait for servers that do not answer.
func abreast[T any](t *testing.T, cases []T, name func(T) string, test func(*testing.T, T)) {
	t.Helper()
	var wg sync.WaitGroup
	for _, c := range cases {
		wg.Go(func() { t.Run(name(c), func(t *testing.T) { test(t, c) }) })
	}
	wg.Wait()
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

// allWithin makes all calls at once, each within bound, and joins their errors. longest is the time
// of the slowest call.
func allWithin(calls map[string]func() error) (longest time.Duration, err error) {
	var mu sync.Mutex
	var all []error
	var wg sync.WaitGroup
	began := time.Now()
	for name, call := range calls {
		wg.Go(func() {
			var err error
			late := inTime(func() { err = call() })
			took := time.Since(began)
			mu.Lock()
			defer mu.Unlock()
			longest = max(longest, took)
			if err = errors.Join(err, late); err != nil {
				all = append(all, fmt.Errorf("%s: %w", name, err))
			}
		})
	}
	wg.Wait()
	return longest, errors.Join(all...)
}

// doomed is a short lease, and when its context ended.
type doomed struct {
	lease    *lock.Lease
	granted  time.Time // not before it was
	notified chan time.Time
	late     func() time.Duration
}

func doom(t *testing.T, lease *lock.Lease) *doomed {
	t.Helper()
	w := &doomed{lease: lease, granted: time.Now(), notified: make(chan time.Time, 1), late: sync.OnceValue(lateness())}
	t.Cleanup(func() { w.late() })
	context.AfterFunc(lease.Context(), func() { w.notified <- time.Now() })
	return w
}

// wasNotified waits for the end of a lease that cannot be renewed, and returns an
// error if that came after its validity or for another reason.
func (w *doomed) wasNotified() (after time.Duration, err error) {
	after, ok := w.within(shortLease + bound)
	if !ok {
		after, ok = w.within(shortLease + bound + w.late())
	}
	if !ok {
		return after, fmt.Errorf("a holder still believed in a lease of %v after %v", shortLease, after)
	}
	if cause := context.Cause(w.lease.Context()); !errors.Is(cause, lock.ErrLost) {
		return after, fmt.Errorf("a holder was notified with another cause: %w", cause)
	}
	return after, nil
}

func (w *doomed) within(patience time.Duration) (after time.Duration, ok bool) {
	timer := time.NewTimer(time.Until(w.granted.Add(patience)))
	defer timer.Stop()
	select {
	case at := <-w.notified:
		after = at.Sub(w.granted)
		return after, after <= patience+w.late()
	case <-timer.C:
		return patience, false
	}
}
