package lock_test

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/httplatch/httplatch/internal/testkit/must"
	"github.com/httplatch/httplatch/lock"
	"github.com/httplatch/httplatch/lock/internal/testkit/fault"
	"github.com/httplatch/httplatch/lock/memstore"
)

func TestSnapshotHolds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := fault.New()
		l := lockerOver(t, store, lock.WithWait(time.Hour))
		require.Equal(t, lock.Store(store), l.Store())
		require.Empty(t, l.Snapshot(10, nil))

		began := time.Now()
		first := acquired(t, l, "user=1")
		ctx, leave := context.WithCancel(t.Context())
		left := make(chan error, 1)
		go func() {
			_, err := l.Acquire(ctx, "user=1")
			left <- err
		}()
		time.Sleep(65 * time.Second)
		second := acquired(t, l.With(lock.WithMaxHold(30*time.Second)), "user=2")

		holds := l.Snapshot(10, nil).Holds
		require.Len(t, holds, 2)
		require.Equal(t, "user=1", holds[0].Key)
		require.Equal(t, "user=1", holds[0].Entry)
		require.Equal(t, began, holds[0].Since)
		require.True(t, holds[0].Renewed)
		require.Equal(t, 1, holds[0].Waiting)
		require.False(t, holds[0].Ending)
		e := must.Entry(t)(store.Get(t.Context(), "user=1"))
		require.Equal(t, e.Token, holds[0].Token)
		require.WithinDuration(t, time.Now().Add(e.Left), holds[0].Until, time.Second)
		require.False(t, holds[1].Renewed, "its hold ends with this lease")

		require.Len(t, l.Snapshot(1, nil).Holds, 1)
		only := l.Snapshot(10, func(entry, _ string) bool { return entry == "user=2" }).Holds
		require.Equal(t, holds[1:], only)

		leave()
		require.ErrorIs(t, <-left, context.Canceled)
		require.NoError(t, first.Release(t.Context()))
		require.NoError(t, second.Release(t.Context()))
		require.Empty(t, l.Snapshot(10, nil).Holds)
	})
}

// However many there are, the first of each list are reported: the work that hangs,
// and the call that has lacked its answer for the longest.
func TestSnapshotTellsTheOldest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const many = 200
		store := fault.New()
		l := lockerOver(t, store, lock.WithBudget(time.Second))
		var held []*lock.Lease
		for i := range many {
			lease := acquired(t, l, lock.Key("held", fmt.Sprint(i)))
			held = append(held, lease)
			time.Sleep(time.Millisecond)
		}
		store.Every(fault.HangRequest, fault.Claim, fault.Release)
		var claims sync.WaitGroup
		for i := range many {
			claims.Go(func() { _, _ = l.Acquire(t.Context(), lock.Key("lost", fmt.Sprint(i))) })
			time.Sleep(time.Millisecond)
		}
		holds := l.Snapshot(3, nil).Holds
		require.Len(t, holds, 3)
		for i, h := range holds {
			require.Equal(t, lock.Key("held", fmt.Sprint(i)), h.Key)
		}
		require.Empty(t, l.Snapshot(-1, nil).Holds)
		holds = l.Snapshot(2*many, nil).Holds
		require.Len(t, holds, 2*many)
		require.False(t, holds[many-1].Since.IsZero())
		require.True(t, holds[many].Since.IsZero(), "those that are only claimed come last")

		claims.Wait()
		cleanups := l.Snapshot(3, nil).Cleanups
		require.Len(t, cleanups, 3)
		for i, c := range cleanups {
			require.Equal(t, lock.Key("lost", fmt.Sprint(i)), c.Key)
		}
		store.Every(nil, fault.Claim, fault.Release)
		for _, lease := range held {
			require.NoError(t, lease.Release(t.Context()))
		}
	})
}

// A run has two names: a hash in the store, and the key that it was given here.
func TestSnapshotOfOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := lockerOver(t, memstore.New())
		_, _, err := l.Once(t.Context(), "job=7", nil, func(context.Context) ([]byte, error) {
			holds := l.Snapshot(10, nil).Holds
			require.Len(t, holds, 1)
			require.Equal(t, "job=7", holds[0].Key)
			require.True(t, strings.HasPrefix(holds[0].Entry, "once:"))
			return nil, nil
		})
		require.NoError(t, err)
	})
}

func TestSnapshotCleanups(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := fault.New().Every(fault.HangRequest, fault.Claim, fault.Release)
		l := lockerOver(t, store, lock.WithBudget(time.Second))
		for i := range 3 {
			_, err := l.Acquire(t.Context(), fmt.Sprint("user=", i))
			require.ErrorIs(t, err, lock.ErrUnknown)
		}
		synctest.Wait()
		s := l.Snapshot(2, nil)
		require.Equal(t, 3, l.Stats().Backlog)
		require.Len(t, s.Cleanups, 2)
		only := l.Snapshot(10, func(entry, _ string) bool { return entry == "user=2" })
		require.Len(t, only.Cleanups, 1)
		require.Equal(t, lock.EventReaped, only.Cleanups[0].Kind)
		require.Equal(t, "user=2", only.Cleanups[0].Entry)
		require.NotEmpty(t, only.Cleanups[0].Token)
		require.False(t, only.Cleanups[0].Since.IsZero())
		require.Empty(t, only.Holds)
		store.Every(nil, fault.Claim, fault.Release)
	})
}

// Of many recoveries the last ones are kept, the newest first.
func TestSnapshotRecoveries(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const n = 100
		store := fault.New()
		l := lockerOver(t, store)
		for i := range n {
			store.Next(fault.Claim, fault.LoseReply)
			lease := acquired(t, l, fmt.Sprint("user=", i))
			require.NoError(t, lease.Release(t.Context()))
		}
		all := l.Snapshot(1000, nil).Recoveries
		require.Len(t, all, 64)
		require.Equal(t, lock.EventRecovered, all[0].Kind)
		require.Equal(t, fmt.Sprint("user=", n-1), all[0].Key)
		require.Equal(t, fmt.Sprint("user=", n-64), all[63].Key)
		require.Len(t, l.Snapshot(5, nil).Recoveries, 5)
	})
}

// A program that makes up names does not fill the memory with them.
func TestSnapshotNamesAreBounded(t *testing.T) {
	t.Parallel()
	l := lockerOver(t, memstore.New())
	for i := range 100 {
		for _, name := range []string{"known", fmt.Sprintf("made-up-%02d", i)} {
			require.NoError(t, l.Do(t.Context(), lock.Key(name, "1"), func(context.Context) error { return nil }))
		}
	}
	names := l.Snapshot(0, nil).Names
	require.Len(t, names, 64)
	require.Contains(t, names, "known")
	require.IsIncreasing(t, names)
}

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
