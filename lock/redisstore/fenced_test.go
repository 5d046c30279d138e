package redisstore_test

import (
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/httplatch/httplatch/internal/testkit/redistest"
	"github.com/httplatch/httplatch/internal/testkit/respproxy"
	"github.com/httplatch/httplatch/internal/testkit/testmain"
	"github.com/httplatch/httplatch/lock"
)

func fenced(token string) lock.Claim {
	c := claim(token)
	c.Fenced = true
	return c
}

func release(tb testing.TB, s lock.Store, key, token string) {
	tb.Helper()
	ok, err := s.Release(timeout(tb, patience), key, lock.Claim{Token: token})
	require.NoError(tb, err)
	require.True(tb, ok)
}

func TestFences(t *testing.T) {
	t.Parallel()
	srv := redistest.Start(t)
	s := open(t, srv.URL())
	const key = "k"
	last := int64(0)
	grow := func(step string) {
		t.Helper()
		e := take(t, s, key, fenced(step))
		require.Greater(t, e.Fence, last, step)
		require.Equal(t, e.Fence, take(t, s, key, fenced(step)).Fence, "the same claim has the same fence")
		got, err := s.Get(t.Context(), key)
		require.NoError(t, err)
		require.Equal(t, e.Fence, got.Fence)
		last = e.Fence
	}
	grow("first")
	release(t, s, key, "first")
	grow("after a release")
	srv.Do(t, "DEL", "latch:lock:k")
	grow("after the entry was lost")
	release(t, s, key, "after the entry was lost")
	require.Equal(t, int64(1), srv.Do(t, "DEL", "latch:lock:k"))
	grow("after the stub was lost")
	release(t, s, key, "after the stub was lost")
	srv.Do(t, "SCRIPT", "FLUSH")
	grow("after the scripts were lost")
	srv.Do(t, "PEXPIRE", "latch:lock:k", 1)
	require.Eventually(t, func() bool { return len(srv.Keys(t)) == 0 }, 10*time.Second, time.Millisecond)
	grow("after the lease was over")
	ok, err := s.Settle(t.Context(), key, lock.Claim{Token: "after the lease was over"}, nil, time.Minute)
	require.NoError(t, err)
	require.True(t, ok)
	ok, err = s.Forget(t.Context(), key, "after the lease was over")
	require.NoError(t, err)
	require.True(t, ok)
	grow("after an operator's release")

	// If the clock was set back, the fence in the stub decides.
	release(t, s, key, "after an operator's release")
	ahead := last + time.Hour.Microseconds()
	stub, _ := srv.Do(t, "GET", "latch:lock:k").(string)
	srv.Do(t, "SET", "latch:lock:k", stub[:16]+itoa(ahead)+stub[32:], "KEEPTTL")
	last = ahead
	grow("after a stub from the future")
	require.Equal(t, ahead+1, last)

	abandoned := fenced("b")
	abandoned.Replaces, abandoned.Linger = "after a stub from the future", time.Minute
	_, err = s.Renew(t.Context(), key, lock.Claim{Token: abandoned.Replaces, Lease: time.Millisecond, Linger: time.Hour})
	require.NoError(t, err)
	srv.Do(t, "PEXPIRE", "latch:lock:k", 600_000) // less than the linger
	require.Greater(t, take(t, s, key, abandoned).Fence, last, "a takeover grows it too")
}

func itoa(n int64) string {
	s := []byte("0000000000000000")
	for i := len(s) - 1; n > 0; i, n = i-1, n/10 {
		s[i] = byte('0' + n%10)
	}
	return string(s)
}

func TestStubs(t *testing.T) {
	t.Parallel()
	srv := redistest.Start(t)
	s := open(t, srv.URL())
	take(t, s, "k", fenced("a"))
	release(t, s, "k", "a")
	left, _ := srv.Do(t, "PTTL", "latch:lock:k").(int64)
	require.InDelta(t, time.Minute.Milliseconds(), left, 5000)
	e, err := s.Get(t.Context(), "k")
	require.NoError(t, err)
	require.Equal(t, lock.Entry{}, e, "a stub is nothing")
	require.Empty(t, listed(t, s))
	for what, ok := range changes(t, s, "k", "a") {
		require.False(t, ok, what)
	}
	require.Equal(t, lock.Entry{State: lock.Held, Token: "b", Attempt: 1, Left: time.Minute}, take(t, s, "k", claim("b")),
		"a claim without a fence takes it as free")
	release(t, s, "k", "b")
	require.Empty(t, listed(t, s), "and leaves another")
	require.Equal(t, []string{"latch:lock:k"}, srv.Keys(t))
}

// A guarded claim never takes the key after its caller has given up, for any
// cause of a delay.
func TestLateClaims(t *testing.T) {
	t.Parallel()
	srv := redistest.Shared(t)
	p := respproxy.Start(t, srv.Addr())
	s := open(t, p.URL())
	key := keyFor(t)
	take(t, s, "warm-"+key, fenced("a"))

	for name, tt := range map[string]struct {
		verb string
		c    lock.Claim
		left int
	}{
		"guarded": {"evalsha", fenced("late"), 0},
		"plain":   {"set", claim("late"), 1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			held := p.On(respproxy.Match{Name: tt.verb, Key: nameOf(t)}, respproxy.Hold())
			for held.Hits() == 0 { // a busy machine may not even send the claim
				_, err := s.Claim(timeout(t, 100*time.Millisecond), keyFor(t), tt.c)
				require.Error(t, err)
			}
			require.Positive(t, held.Deliver(t))
			require.Len(t, srv.Keys(t, nameOf(t)), tt.left)
		})
	}

	t.Run("in time", func(t *testing.T) {
		t.Parallel()
		p.On(respproxy.Match{Name: "evalsha", Key: nameOf(t)}, respproxy.HoldFor(100*time.Millisecond))
		e, err := s.Claim(timeout(t, patience), keyFor(t), fenced("a"))
		require.NoError(t, err)
		require.Equal(t, "a", e.Token)
	})
}

func TestServerClocks(t *testing.T) {
	t.Parallel()
	for name, cluster := range map[string]bool{"single": false, "cluster": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			url, args := "redis://", []string(nil)
			if cluster {
				url, args = "redis-cluster://", []string{"--cluster-enabled", "yes", "--cluster-announce-ip", "127.0.0.1"}
			}
			srv, clock := redistest.StartWithClock(t, args...)
			p := respproxy.Start(t, srv.Addr())
			if cluster {
				srv.Do(t, "CONFIG", "SET", "cluster-announce-port", p.Port())
				slots := []any{"CLUSTER", "ADDSLOTS"}
				for slot := range 16384 {
					slots = append(slots, slot)
				}
				srv.Do(t, slots...)
				require.Eventually(t, func() bool {
					text, _ := srv.Do(t, "CLUSTER", "INFO").(string)
					return strings.Contains(text, "cluster_state:ok")
				}, patience, 10*time.Millisecond)
			}
			s := open(t, url+p.Addr())
			claims := func(token string) int {
				t.Helper()
				before := p.Commands("evalsha")
				take(t, s, keyFor(t), fenced(token))
				release(t, s, keyFor(t), token)
				return p.Commands("evalsha") - before - 1
			}
			require.Equal(t, 2, claims("a"), "the first learns what time it is")
			require.Equal(t, 1, claims("b"))
			clock.Set(t, time.Hour)
			require.Equal(t, 2, claims("c"), "refused, learned, repeated")
			require.Equal(t, 1, claims("d"))

			clock.Set(t, 0)
			require.Equal(t, 1, claims("e"), "learned on the way")
			held := p.On(respproxy.Match{Name: "evalsha", Key: nameOf(t)}, respproxy.Hold())
			requireUnknown(t, untilSent(t, func() error {
				_, err := s.Claim(timeout(t, 100*time.Millisecond), keyFor(t), fenced("late"))
				return err
			}), "silent")
			held.Wait(t, 1)
			held.Deliver(t)
			held.Remove()
			e, err := s.Get(t.Context(), keyFor(t))
			require.NoError(t, err)
			require.Equal(t, lock.Free, e.State, "and the guard is right again")
		})
	}
}

func TestClaimsWithoutADeadlineAreNotGuarded(t *testing.T) {
	t.Parallel()
	srv, clock := redistest.StartWithClock(t)
	p := respproxy.Start(t, srv.Addr())
	s := open(t, p.URL())
	take(t, s, keyFor(t)+"&1", fenced("a"))
	clock.Set(t, time.Hour) // a guard would refuse
	before := p.Commands("evalsha")
	e, err := s.Claim(t.Context(), keyFor(t)+"&2", fenced("a"))
	require.NoError(t, err)
	require.Equal(t, "a", e.Token)
	require.Equal(t, 1, p.Commands("evalsha")-before)
}

// Four clients take turns, while scripts, stubs and entries get lost.
func TestFencesOfManyClients(t *testing.T) {
	testmain.SkipIn(t, testmain.Quick, "takes 1,000 fences")
	t.Parallel()
	srv := redistest.Start(t)
	const clients, each = 4, 250
	var mu sync.Mutex // only so that the race detector sees the effect of the lock
	fences := make([]int64, 0, clients*each)
	var wg sync.WaitGroup
	for i := range clients {
		s := open(t, srv.URL())
		wg.Go(func() {
			token := string(rune('a' + i))
			for n := 0; n < each; {
				e, err := s.Claim(timeout(t, patience), "k", fenced(token))
				if err != nil {
					t.Error(err)
					return
				}
				if e.Token != token {
					continue
				}
				mu.Lock()
				fences = append(fences, e.Fence)
				mu.Unlock()
				n++
				if ok, err := s.Release(t.Context(), "k", lock.Claim{Token: token}); err != nil || !ok {
					t.Errorf("release: %v, %v", ok, err)
					return
				}
			}
		})
	}
	stop := make(chan struct{})
	vandal := srv.Client(t)
	var vandalism sync.WaitGroup
	vandalism.Go(func() {
		tick := time.NewTicker(5 * time.Millisecond)
		defer tick.Stop()
		for {
			select {
			case <-stop:
				return
			case <-tick.C:
			}
			_ = vandal.ScriptFlush(t.Context()).Err()
			_ = vandal.Eval(t.Context(), // removes the stub, if the entry is a stub
				"if string.sub(redis.call('GET', KEYS[1]) or '', 1, 1) == 'F' then return redis.call('DEL', KEYS[1]) end",
				[]string{"latch:lock:k"}).Err()
		}
	})
	wg.Wait()
	close(stop)
	vandalism.Wait()
	require.Len(t, fences, clients*each)
	for i := 1; i < len(fences); i++ {
		require.Greater(t, fences[i], fences[i-1])
	}
}
