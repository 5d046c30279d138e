package lock_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/httplatch/httplatch/lock"
	"github.com/httplatch/httplatch/lock/internal/testkit/fault"
	"github.com/httplatch/httplatch/lock/memstore"
)

func TestSnapshotHolds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := fault.New()
		l := fault.Locker(t, store, lock.WithWait(time.Hour))
		require.Equal(t, lock.Store(store), l.Store())
		require.Empty(t, l.Snapshot(10, nil))

		began := time.Now()
		first := acquired(t, l, "user=1")
		ctx, leave := context.WithCancel(t.Context())
		left := make(chan error, 1)
		go func() { left <- l.Do(ctx, "user=1", nil) }()
		time.Sleep(65 * time.Second)
		second := acquired(t, l.With(lock.WithMaxHold(30*time.Second)), "user=2")

		holds := l.Snapshot(10, nil).Holds
		require.Len(t, holds, 2)
		e := store.State(t, "user=1")
		require.WithinDuration(t, time.Now().Add(e.Left), holds[0].Until, time.Second)
		require.Equal(t, lock.Hold{
			Key: "user=1", Entry: "user=1", Token: e.Token, Owner: e.Owner, Since: began, Until: holds[0].Until, Renewed: true, Waiting: 1,
		}, holds[0])
		require.False(t, holds[1].Renewed, "its hold ends with this lease")
		require.Len(t, l.Snapshot(1, nil).Holds, 1)
		require.Equal(t, holds[1:], l.Snapshot(10, func(entry, _ string) bool { return entry == "user=2" }).Holds)

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
		l := fault.Locker(t, store, lock.WithBudget(time.Second))
		var held []*lock.Lease
		for i := range many {
			held = append(held, acquired(t, l, lock.Key("held", fmt.Sprint(i))))
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
		require.Equal(t, many, l.Stats().Backlog)
		cleanups := l.Snapshot(3, nil).Cleanups
		require.Len(t, cleanups, 3)
		for i, c := range cleanups {
			require.Equal(t, lock.Key("lost", fmt.Sprint(i)), c.Key)
		}
		only := l.Snapshot(10, func(entry, _ string) bool { return entry == "lost=2" })
		require.Equal(t, cleanups[2:], only.Cleanups)
		require.Empty(t, only.Holds)
		require.Equal(t, []any{lock.EventReaped, "lost=2"}, []any{cleanups[2].Kind, cleanups[2].Entry})
		require.NotEmpty(t, cleanups[2].Token)
		require.False(t, cleanups[2].Since.IsZero())
		store.Every(nil, fault.Claim, fault.Release)
		for _, lease := range held {
			require.NoError(t, lease.Release(t.Context()))
		}
	})
}

// Of many recoveries the last ones are kept, the newest first.
func TestSnapshotRecoveries(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const n = 100
		store := fault.New()
		l := fault.Locker(t, store)
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
	l := fault.Locker(t, memstore.New())
	for i := range 100 {
		for _, name := range []string{"known", fmt.Sprintf("made-up-%02d", i)} {
			require.NoError(t, l.Do(t.Context(), lock.Key(name, "1"), nothing))
		}
	}
	names := l.Snapshot(0, nil).Names
	require.Len(t, names, 64)
	require.Contains(t, names, "known")
	require.IsIncreasing(t, names)
}

// busy are the numbers that are zero when nothing is under way.
func busy(l *lock.Locker) lock.Stats {
	s := l.Stats()
	s.Retries = 0
	return s
}
