package memstore_test

import (
	"context"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/httplatch/httplatch/internal/testkit/heap"
	"github.com/httplatch/httplatch/lock"
	"github.com/httplatch/httplatch/lock/memstore"
)

// The tests in this file measure the heap, so they are not parallel: these run
// while none of the parallel ones does.

// put claims keys without the cost of a helper of package require.
func put(t *testing.T, s lock.Store, key string, c lock.Claim) {
	t.Helper()
	if e, err := s.Claim(t.Context(), key, c); err != nil || e.State != lock.Held || e.Token != c.Token {
		t.Fatalf("Claim = %+v, %v", e, err)
	}
}

func TestShrinksAfterABurst(t *testing.T) {
	const n = 100_000
	s := memstore.New()
	before := heap.InUse()
	for i := range n {
		put(t, s, strconv.Itoa(i), memoryClaim("a", time.Hour))
	}
	full := heap.InUse() - before
	require.Greater(t, full, int64(100*n))
	for i := range n {
		if ok, err := s.Release(t.Context(), strconv.Itoa(i), lock.Claim{Token: "a"}); err != nil || !ok {
			t.Fatalf("Release = %t, %v", ok, err)
		}
	}
	require.Less(t, heap.InUse()-before, full/20)
	runtime.KeepAlive(s)
}

// No caller asks for the keys of a burst again, and no goroutine cleans up. The
// calls for other keys do, a little each.
func TestOfWhatIsOverIsGivenBack(t *testing.T) {
	const n = 100_000
	synctest.Test(t, func(t *testing.T) {
		s := memstore.New()
		before := heap.InUse()
		for i := range n {
			put(t, s, "burst="+strconv.Itoa(i), memoryClaim("a", 30*time.Second+time.Duration(i)))
		}
		full := heap.InUse() - before
		time.Sleep(time.Hour)
		for i := range n / 5 { // so that each shard has claims enough to look at all that is over
			put(t, s, "other="+strconv.Itoa(i%1000), memoryClaim("a", time.Hour))
		}
		require.Less(t, heap.InUse()-before, full/40)
		runtime.KeepAlive(s)
	})
}

func TestPerLiveKey(t *testing.T) {
	const n = 200_000
	s := memstore.New()
	before := heap.InUse()
	var keys int64
	for i := range n {
		key := "user=" + strconv.Itoa(i)
		keys += int64(len(key))
		// A token as long as a Locker's, and like there one for each key; an owner for all.
		token := strings.Clone("AAAAAAAAAAAAAAAAAAAAAA.1234567.AAAAAAAAAAA")
		put(t, s, key, lock.Claim{Token: token, Owner: "a-host-name:12345", Lease: time.Hour})
	}
	perKey := (heap.InUse() - before - keys) / n
	t.Logf("%d bytes in addition to the key", perKey)
	require.LessOrEqual(t, perKey, int64(250))
	runtime.KeepAlive(s)
}

// Receipts of 1 MiB, eight times as many as there is room for.
func TestOfReceiptsThatDoNotFit(t *testing.T) {
	const limit = 32 << 20
	l := lock.New(memstore.New(memstore.WithLimits(1_000_000, limit)), lock.WithLogger(quiet))
	before := heap.InUse()
	var callers sync.WaitGroup
	for c := range 4 {
		callers.Go(func() {
			answer := make([]byte, 1<<20)
			for i := c; i < 8*limit>>20; i += 4 {
				receipt, _, err := l.Once(t.Context(), strconv.Itoa(i), nil, func(context.Context) ([]byte, error) { return answer, nil })
				if err != nil || len(receipt) != len(answer) {
					t.Errorf("Once = %d bytes, %v", len(receipt), err)
				}
			}
		})
	}
	callers.Wait()
	require.LessOrEqual(t, heap.InUse()-before, int64(limit))
	require.Zero(t, l.Stats().Backlog)
	require.LessOrEqual(t, l.Stats().Bytes, int64(limit))
	require.Equal(t, 8*limit>>20, l.Stats().Entries, "of each it is kept that there was one")
	runtime.KeepAlive(l)
}
