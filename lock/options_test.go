package lock_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/httplatch/httplatch/internal/keytext"
	"github.com/httplatch/httplatch/lock"
	"github.com/httplatch/httplatch/lock/internal/testkit/fault"
	"github.com/httplatch/httplatch/lock/memstore"
)

func TestWithSharesEverything(t *testing.T) {
	solo(t, func(t *testing.T, s *fault.Store, l *lock.Locker) {
		slow := l.With(lock.WithMaxHold(time.Hour))
		e := acquired(t, l, key)
		require.ErrorIs(t, slow.Do(t.Context(), key, nil), lock.ErrHeld)
		require.Equal(t, 1, s.Count(fault.Claim))
		require.NoError(t, e.Release(t.Context()))
		require.NoError(t, slow.Close(t.Context()))
		require.ErrorIs(t, l.Do(t.Context(), key, nil), lock.ErrClosed)
	})
}

func TestOptionsThatContradict(t *testing.T) {
	for name, open := range map[string]func(){
		"nil store":        func() { lock.New(nil) },
		"short lease":      func() { lock.New(memstore.New(), lock.WithLease(900*time.Millisecond)) },
		"hold below lease": func() { lock.New(memstore.New(), lock.WithMaxHold(time.Second)) },
		"with, later":      func() { lock.New(memstore.New()).With(lock.WithBudget(time.Minute)) },
		"zero lease":       func() { lock.WithLease(0) },
		"negative budget":  func() { lock.WithBudget(-1) },
		"nil observer":     func() { lock.WithObserver(nil) },
		"nil logger":       func() { lock.WithLogger(nil) },
		"nil option":       func() { lock.New(memstore.New(), nil) },
		"hold of no time":  func() { lock.WithMaxHold(0) },
	} {
		t.Run(name, func(t *testing.T) { require.Panics(t, open) })
	}
}

func TestBadKeys(t *testing.T) {
	l := fault.Locker(t, memstore.New())
	for name, k := range map[string]string{"empty": "", "long": string(make([]byte, keytext.MaxBytes+1)), "reserved": "once:1"} {
		_, one := l.Acquire(t.Context(), k)
		_, set := l.AcquireAll(t.Context(), []string{"a", k})
		_, permit := l.AcquireAny(t.Context(), []string{"a", k})
		for _, err := range []error{one, set, permit} {
			require.Error(t, err, name)
			require.NotErrorIs(t, err, lock.ErrUnavailable, name)
		}
	}
	_, err := l.AcquireAll(t.Context(), nil)
	require.Error(t, err)
	_, err = l.AcquireAny(t.Context(), nil)
	require.Error(t, err)
	require.Zero(t, l.Stats().Active)
	e := acquired(t, l, string(make([]byte, keytext.MaxBytes)))
	require.NoError(t, e.Release(t.Context()))
}
