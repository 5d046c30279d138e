package lock_test

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/httplatch/httplatch/lock"
)

// All leases of a Locker, and of those made from it, share the timers of their
// renewals. Each has to be renewed at its own time, whichever lease came before it.
func TestEachLeaseIsRenewedAtItsOwnTime(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		var mu sync.Mutex
		renewed := make(map[string][]time.Duration)
		l := lock.New(lock.NewMemory(), lock.WithObserver(func(_ context.Context, e lock.Event) {
			if e.Kind == lock.EventRenewed {
				mu.Lock()
				defer mu.Unlock()
				renewed[e.Name] = append(renewed[e.Name], time.Since(began).Round(time.Millisecond))
			}
		}))
		kinds := []struct {
			name  string
			of    *lock.Locker
			third time.Duration
		}{
			{"long", l.With(lock.WithLease(90 * time.Second)), 30 * time.Second},
			{"short", l.With(lock.WithLease(9 * time.Second)), 3 * time.Second},
			{"middle", l, 10 * time.Second},
		}
		const each = 100 // more than there are shards
		var leases []*lock.Lease
		acquire := func(name string, of *lock.Locker, i int) *lock.Lease {
			e, err := of.Acquire(t.Context(), lock.Key(name, string(rune('A'+i))))
			require.NoError(t, err)
			return e
		}
		for i := range each {
			for _, k := range kinds {
				leases = append(leases, acquire(k.name, k.of, i))
			}
		}
		for i := range each { // they take the timers first, and leave
			require.NoError(t, acquire("gone", l.With(lock.WithLease(3*time.Second)), i).Release(t.Context()))
		}

		time.Sleep(31 * time.Second)
		mu.Lock()
		for _, k := range kinds {
			times := make(map[time.Duration]int)
			for _, at := range renewed[k.name] {
				times[at]++
			}
			want := make(map[time.Duration]int)
			for at := k.third; at <= 31*time.Second; at += k.third {
				want[at] = each
			}
			require.Equal(t, want, times, k.name)
		}
		require.Empty(t, renewed["gone"])
		mu.Unlock()

		for _, e := range leases {
			require.NoError(t, e.Release(t.Context()))
		}
		total := func() (n int) {
			mu.Lock()
			defer mu.Unlock()
			for _, times := range renewed {
				n += len(times)
			}
			return n
		}
		before := total()
		time.Sleep(time.Hour)
		require.Equal(t, before, total(), "renewed after its release")
		require.NoError(t, l.Close(t.Context()))
	})
}

// A lease that is over is not kept until its renewal would have been due. Not
// parallel, because it measures the heap.
func TestLeasesThatAreOverAreForgotten(t *testing.T) {
	l := lock.New(lock.NewMemory())
	cycle := func() {
		e, err := l.Acquire(t.Context(), key)
		if err != nil || e.Release(t.Context()) != nil {
			t.Fatal(err)
		}
	}
	cycle()
	before := heap()
	for range 50_000 {
		cycle()
	}
	require.Less(t, heap()-before, int64(1<<20))
	require.NoError(t, l.Close(t.Context()))
}
