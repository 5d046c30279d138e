package redisstore_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/httplatch/httplatch/lock"
)

// slowOp names an operation of a caller.
type slowOp string

func (op slowOp) ofLease() bool {
	switch op {
	case "Release", "Settle", "Extend", "Close":
		return true
	}
	return false
}

// ofLocker reports whether op returns the errors of a Locker.
func (op slowOp) ofLocker() bool {
	switch op {
	case "Acquire", "Once", "Release", "Settle", "Extend":
		return true
	}
	return false
}

// slowStart prepares a call on key while nothing is slow yet.
type slowStart func(t *testing.T, w *slowWork, c *slowCell, key string) (call func() error)

var slowOps = map[slowOp]slowStart{
	"Acquire": func(_ *testing.T, w *slowWork, c *slowCell, key string) func() error {
		return func() error { return w.acquire(c, key) }
	},
	"Once": func(_ *testing.T, w *slowWork, _ *slowCell, key string) func() error {
		return func() error {
			_, _, err := w.locker.Once(context.Background(), key, nil, func(context.Context) ([]byte, error) { return nil, nil })
			return err
		}
	},
	"Release": func(t *testing.T, w *slowWork, _ *slowCell, key string) func() error {
		t.Helper()
		e := w.lease(t, w.locker, key)
		return func() error { return e.Release(context.Background()) }
	},
	"Settle": func(t *testing.T, w *slowWork, _ *slowCell, key string) func() error {
		t.Helper()
		e, receipt := w.lease(t, w.locker, key), []byte("receipt")
		if w.callers == 1 && w.row.receipt > 0 {
			receipt = make([]byte, w.row.receipt)
		}
		return func() error { return e.Settle(context.Background(), receipt, time.Minute) }
	},
	"Extend": func(t *testing.T, w *slowWork, _ *slowCell, key string) func() error {
		t.Helper()
		e := w.lease(t, w.locker, key)
		return func() error { return e.Extend(context.Background()) }
	},
	"Close": func(t *testing.T, w *slowWork, c *slowCell, key string) func() error {
		t.Helper()
		own := w.newLocker(c)
		e := w.lease(t, own, key)
		released := make(chan struct{})
		c.close = append(c.close, func(context.Context) { <-released })
		return func() error {
			go func() {
				defer close(released)
				_ = e.Release(context.Background())
			}()
			return own.Close(timeout(t, slowBudget))
		}
	},
	"Get": func(t *testing.T, w *slowWork, _ *slowCell, key string) func() error {
		t.Helper()
		return func() error {
			_, err := w.store.Get(timeout(t, slowBudget), key)
			return err
		}
	},
	"Check": func(t *testing.T, w *slowWork, _ *slowCell, _ string) func() error {
		t.Helper()
		s, ok := w.store.(interface {
			Check(ctx context.Context) error
		})
		if !ok {
			return nil
		}
		return func() error { return s.Check(timeout(t, slowBudget)) }
	},
	"List": func(t *testing.T, w *slowWork, _ *slowCell, _ string) func() error {
		t.Helper()
		s, ok := w.store.(lock.Inspector)
		if !ok {
			return nil
		}
		return func() error {
			for _, err := range s.List(timeout(t, slowBudget)) {
				if err != nil {
					return err
				}
			}
			return nil
		}
	},
}

// lease is patient: a busy machine may take longer than the budget. It is renewed, because the
// first lease may end before the slow part.
func (w *slowWork) lease(t *testing.T, l *lock.Locker, key string) *lock.Lease {
	t.Helper()
	var e *lock.Lease
	for end := time.Now().Add(patience); ; {
		var err error
		if e == nil {
			e, err = l.Acquire(t.Context(), key)
		}
		if err == nil {
			err = e.Extend(t.Context())
		}
		if err == nil {
			return e
		}
		require.ErrorIs(t, err, lock.ErrUnavailable)
		require.True(t, time.Now().Before(end), err)
	}
}

// acquire keeps a granted lease until the end of the scene.
func (w *slowWork) acquire(c *slowCell, key string) error {
	e, err := w.locker.Acquire(context.Background(), key)
	if err != nil {
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.close = append([]func(context.Context){func(ctx context.Context) { _ = e.Release(ctx) }}, c.close...)
	return nil
}
