package redisstore_test

import (
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/httplatch/httplatch/internal/keytext"
	"github.com/httplatch/httplatch/internal/testkit/redistest"
	"github.com/httplatch/httplatch/internal/testkit/testmain"
	"github.com/httplatch/httplatch/lock"
	"github.com/httplatch/httplatch/lock/redisstore"
)

// listed returns the entries of List, by key.
func listed(t *testing.T, s *redisstore.Store) map[string]lock.Entry {
	t.Helper()
	all := map[string]lock.Entry{}
	for e, err := range s.List(timeout(t, 30*time.Second)) {
		require.NoError(t, err)
		if _, twice := all[e.Key]; twice {
			t.Fatalf("%q was listed twice", e.Key)
		}
		all[e.Key] = e
	}
	return all
}

func TestListTenThousand(t *testing.T) {
	testmain.SkipIn(t, testmain.Quick, "lists 10,000 entries")
	t.Parallel()
	srv := redistest.Start(t)
	s := open(t, srv.URL())
	const n = 10_000
	var wg sync.WaitGroup
	for part := range 20 {
		wg.Go(func() {
			for i := part; i < n; i += 20 {
				if _, err := s.Claim(t.Context(), fmt.Sprint("user=", i), lock.Claim{Token: "a", Lease: time.Hour}); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	all := listed(t, s)
	require.Len(t, all, n)
	for i := range n {
		if _, ok := all[fmt.Sprint("user=", i)]; !ok { // not by require, which looks at all of them
			t.Fatalf("user=%d is missing", i)
		}
	}
	require.InDelta(t, time.Hour, all["user=1"].Left, float64(5*time.Minute))

	seen := 0
	for _, err := range s.List(t.Context()) {
		require.NoError(t, err)
		if seen++; seen == 3 {
			break
		}
	}
	require.Equal(t, 3, seen)
}

func TestHostileKeys(t *testing.T) {
	t.Parallel()
	srv := redistest.Start(t)
	s := open(t, srv.URL(), redisstore.WithPrefix("we?rd[*]\\^:"))
	other := open(t, srv.URL(), redisstore.WithPrefix("weird*:"))
	keys := []string{
		"user=42", "user=4", "user=42 ", "\x00", "\r\n*1\r\n$8\r\nFLUSHALL\r\n", "*", "?", "[a]", "\\", "{}", "{a}b", "a:b", "ü", "\xff\xfe",
		"%41", "A", "#", "once", "once:", "once:x", "once:once:x", "lock:x", "check", "=", "&", "~", "/../", "'\"`;--",
		strings.Repeat("x", 200), strings.Repeat("x", 201), strings.Repeat("x", keytext.MaxBytes),
		strings.Repeat("\n", keytext.MaxBytes), "once:" + strings.Repeat("x", 300),
	}
	for i, key := range keys {
		take(t, s, key, claim(fmt.Sprint("token", i)))
		take(t, other, key, claim("other"))
	}
	all := listed(t, s)
	require.Len(t, all, len(keys))
	for i, key := range keys {
		require.Equal(t, fmt.Sprint("token", i), all[key].Token, "%q", key)
		e, err := s.Claim(t.Context(), key, claim("x"))
		require.NoError(t, err)
		require.Equal(t, fmt.Sprint("token", i), e.Token)
		ok, err := s.Forget(t.Context(), key, e.Token)
		require.NoError(t, err)
		require.True(t, ok)
	}
	require.Empty(t, listed(t, s))
	require.Len(t, listed(t, other), len(keys), "another prefix is another store")
}

func TestListGoesOnPastForeignValues(t *testing.T) {
	t.Parallel()
	srv := redistest.Start(t)
	s := open(t, srv.URL())
	take(t, s, "mine", claim("a"))
	srv.Do(t, "SET", "latch:lock:foreign", "hello")
	srv.Do(t, "SET", "latch:lock:long", strings.Repeat("hello", 10<<10)) // read in two steps
	srv.Do(t, "LPUSH", "latch:lock:list", "hello")                       // not a string, not listed
	srv.Do(t, "SET", "latch:lock:not%zzaname", "hello")
	srv.Do(t, "SET", "latch:elsewhere", "hello")
	keys := map[string]string{}
	for e, err := range s.List(t.Context()) {
		keys[e.Key] = class(err)
	}
	require.Equal(t, map[string]string{"mine": "", "foreign": "value", "long": "value"}, keys)
}

func TestListOfADeadServer(t *testing.T) {
	t.Parallel()
	for name, url := range map[string]func(*testing.T) (string, func()){
		"single": func(t *testing.T) (string, func()) {
			srv := redistest.Start(t)
			return srv.URL(), srv.Kill
		},
		"cluster": func(t *testing.T) (string, func()) {
			c := redistest.StartCluster(t, 1, nil)
			return c.URL(), c.Nodes[0].Kill
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			u, kill := url(t)
			s := open(t, u)
			kill()
			n := 0
			for e, err := range s.List(timeout(t, patience)) {
				require.Error(t, err)
				require.Equal(t, lock.Entry{}, e)
				n++
			}
			require.Equal(t, 1, n)
		})
	}
}
