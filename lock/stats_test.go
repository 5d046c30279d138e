package lock_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/httplatch/httplatch/lock"
	"github.com/httplatch/httplatch/lock/internal/fault"
	"github.com/httplatch/httplatch/lock/memstore"
)

func TestStats(t *testing.T) {
	bubble(t, func(t *testing.T, s *fault.Store, open func(...lock.Option) *lock.Locker) {
		l := open()
		require.Zero(t, busy(l))
		e := acquired(t, l.With(), key)
		require.Equal(t, lock.Stats{Active: 1}, busy(l))
		s.Every(fault.HangRequest, fault.Release)
		require.ErrorIs(t, e.Release(t.Context()), lock.ErrUnknown)
		require.Equal(t, lock.Stats{Backlog: 1}, busy(l), "until the release is answered")
		s.Every(nil, fault.Release)
		time.Sleep(time.Minute)
		require.Zero(t, busy(l))
	})
}

func TestStatsOfTheEmbeddedStore(t *testing.T) {
	l := lock.New(memstore.New(), lock.WithLogger(quiet))
	_, _, err := l.Once(t.Context(), key, nil, func(context.Context) ([]byte, error) { return make([]byte, 2000), nil })
	require.NoError(t, err)
	require.Equal(t, 1, l.Stats().Entries)
	require.Greater(t, l.Stats().Bytes, int64(2000))
}

// busy are the numbers that are zero when nothing is under way.
func busy(l *lock.Locker) lock.Stats {
	s := l.Stats()
	s.Retries = 0
	return s
}
