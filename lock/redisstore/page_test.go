package redisstore_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/httplatch/httplatch/internal/testkit/redistest"
	"github.com/httplatch/httplatch/internal/testkit/testmain"
	"github.com/httplatch/httplatch/lock"
	"github.com/httplatch/httplatch/lock/redisstore"
)

// paged returns the entries of all pages, by key, and the size of the largest page.
func paged(t *testing.T, s *redisstore.Store, limit int, match func(key string) bool) (all map[string]lock.Entry, most int) {
	t.Helper()
	all = map[string]lock.Entry{}
	for cursor, n := "", 0; ; n++ {
		require.Less(t, n, 100_000, "it does not end")
		page, next, err := s.Page(timeout(t, patience), cursor, limit, match)
		require.NoError(t, err)
		for _, e := range page {
			all[e.Key] = e
		}
		most = max(most, len(page))
		if next == "" {
			return all, most
		}
		cursor = next
	}
}

func TestPages(t *testing.T) {
	testmain.SkipIn(t, testmain.Short, "reads 500 entries page by page")
	t.Parallel()
	srv := redistest.Start(t)
	s := open(t, srv.URL())
	long := strings.Repeat("x", 300)
	keys := []string{"user=42", "a\nb", "\xff", "*", long}
	for i := range 500 {
		keys = append(keys, fmt.Sprint("order=", i))
	}
	for _, key := range keys {
		take(t, s, key, claim("a"))
	}
	srv.Do(t, "SET", "latch:lock:foreign", "hello")
	srv.Do(t, "SET", "elsewhere", "hello")
	receipt := []byte(strings.Repeat("r", 1<<20))
	take(t, s, "once:settled", lock.Claim{Token: "b", Owner: "host", Fingerprint: make([]byte, 33), Lease: time.Minute, Linger: time.Minute})
	ok, err := s.Settle(t.Context(), "once:settled", lock.Claim{Token: "b"}, receipt, time.Minute)
	require.NoError(t, err)
	require.True(t, ok)

	all, most := paged(t, s, 50, nil)
	require.Len(t, all, len(keys)+2)
	require.Less(t, most, 150, "SCAN may return a little more than it is asked for")
	for _, key := range keys {
		require.Equal(t, lock.Held, all[key].State, "%q", key)
	}
	require.Equal(t, lock.Entry{Key: "foreign"}, all["foreign"])
	settled := all["once:settled"]
	require.Equal(t, lock.Settled, settled.State)
	require.Equal(t, "host", settled.Owner)
	require.Empty(t, settled.Receipt)

	found, _ := paged(t, s, 50, func(key string) bool { return strings.Contains(key, "=42") })
	require.Len(t, found, 12, "user=42, order=42 and order=420 to 429")
	found, _ = paged(t, s, 50, func(key string) bool { return key == long })
	require.Len(t, found, 1)

	for _, cursor := range []string{"x", "0", "-1:0", "0:x", "0:-1", ":", "99999999999999999999:0"} {
		_, _, err := s.Page(t.Context(), cursor, 50, nil)
		require.ErrorIs(t, err, lock.ErrNotApplied, cursor)
	}
	page, next, err := s.Page(t.Context(), "7:0", 50, nil)
	require.NoError(t, err)
	require.Empty(t, page)
	require.Empty(t, next)

	srv.Kill()
	_, _, err = s.Page(timeout(t, patience), "", 50, nil)
	require.Error(t, err)
}

func TestPagesCluster(t *testing.T) {
	t.Parallel()
	cluster := redistest.StartCluster(t, 3, nil)
	s := open(t, cluster.URL())
	for i := range 300 {
		take(t, s, fmt.Sprint("user=", i), claim("a"))
	}
	all, most := paged(t, s, 20, nil)
	require.Len(t, all, 300)
	require.Less(t, most, 60)
}

// One of the names that are read in one round trip may be gone: a cluster client
// used the nil for this name, at any position, as the answer to all names.
func TestEntryThatEndsWhileItIsListedHidesNoOther(t *testing.T) {
	t.Parallel()
	for name, client := range map[string]func(t *testing.T) redis.UniversalClient{
		"client": func(t *testing.T) redis.UniversalClient { t.Helper(); return redistest.Start(t).Client(t) },
		"cluster": func(t *testing.T) redis.UniversalClient {
			t.Helper()
			return redistest.StartCluster(t, 1, nil).Client(t)
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := redisstore.New(client(t))
			for i := range 10 {
				take(t, s, fmt.Sprint("user=", i), claim("a"))
			}
			for left := 9; left >= 7; left-- {
				gone := map[int]int{9: 0, 8: 4, 7: 7}[left] // the first, one in the middle, the last
				seen := 0
				page, _, err := s.Page(timeout(t, patience), "", 1000, func(key string) bool {
					if seen == gone {
						ok, err := s.Release(t.Context(), key, lock.Claim{Token: "a"})
						require.NoError(t, err)
						require.True(t, ok)
					}
					seen++
					return true
				})
				require.NoError(t, err)
				require.Len(t, page, left)
			}
		})
	}
}
