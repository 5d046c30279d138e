package faults_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
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
