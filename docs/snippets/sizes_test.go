package snippets_test

import (
	"fmt"
	"net/http"
	"regexp"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/httplatch/httplatch/internal/redistest"
	"github.com/httplatch/httplatch/keyfunc"
	"github.com/httplatch/httplatch/lock"
	"github.com/httplatch/httplatch/lock/redisstore"
	latch "github.com/httplatch/httplatch/middleware"
)

// TestSizes measures by how much the memory of a Redis grows with each entry, and holds the
// pages to it.
func TestSizes(t *testing.T) {
	t.Parallel()
	const entries, answer = 6_000, 1024
	aLock := numberOn(t, "../eviction.md", "A lock takes about (\\d+) bytes, with a key such as `shop:lock:user=1000000`")
	require.Equal(t, aLock, numberOn(t, "../choosing.md", `\| memory for a lock, with a key such as .* \| (\d+) B `))
	record := answer + numberOn(t, "../eviction.md", `\(size of an answer \+ (\d+) bytes\)`)
	require.Contains(t, read(t, "../choosing.md"), fmt.Sprintf("| memory for the record of an answer of 1 KiB | %.1f kB", float64(record)/1000))

	srv := redistest.Start(t)
	store, err := redisstore.Open(t.Context(), srv.URL(), redisstore.WithPrefix("shop:"))
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, store.Close()) })
	locker := newLocker(t, store, lock.WithBudget(10*time.Second), lock.WithLease(10*time.Minute))
	grown := func(of string, want int, add func(i int)) {
		t.Helper()
		add(0) // connections and scripts are no entries
		before := usedMemory(t, srv)
		for i := range entries {
			add(i + 1)
		}
		bytes := (usedMemory(t, srv) - before) / entries
		t.Logf("%s takes %d bytes of a Redis", of, bytes)
		// Servers differ, and so do the names of hosts, which are in each entry.
		require.InDelta(t, 0.95*float64(want), bytes, 0.2*float64(want))
	}

	var leases []*lock.Lease
	key := func(i int) string { return lock.Key("user", strconv.Itoa(1_000_000+i)) }
	grown("a lock", aLock, func(i int) {
		lease, err := locker.Acquire(t.Context(), key(i))
		require.NoError(t, err)
		leases = append(leases, lease)
	})
	for _, lease := range leases {
		require.NoError(t, lease.Release(t.Context()))
	}

	once := latch.Idempotent(locker, keyfunc.Context(auth.UserID), keyfunc.IdempotencyKey)
	h := auth.Require(once(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		w.Header().Set("Location", "/orders/6J25NBC6PSYZRTTN7RBQMAPK55")
		_, _ = w.Write(make([]byte, answer))
	})))
	grown("the record of an answer of 1 KiB", record, func(i int) {
		require.Equal(t, http.StatusOK, ask(h, "POST", "/orders", fmt.Sprintf("8e03978e-40d5-43e8-bc93-%012d", i)).Code)
	})
}

// numberOn is the one that a page has behind these words.
func numberOn(t *testing.T, page, words string) int {
	t.Helper()
	m := regexp.MustCompile(words).FindStringSubmatch(read(t, page))
	require.NotNil(t, m, "%s: %s", page, words)
	n, err := strconv.Atoi(m[1])
	require.NoError(t, err)
	return n
}

func usedMemory(t *testing.T, srv *redistest.Server) int {
	t.Helper()
	info, ok := srv.Do(t, "INFO", "memory").(string)
	require.True(t, ok)
	m := regexp.MustCompile(`used_memory:(\d+)`).FindStringSubmatch(info)
	require.NotNil(t, m)
	n, err := strconv.Atoi(m[1])
	require.NoError(t, err)
	return n
}
