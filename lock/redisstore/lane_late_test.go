package redisstore_test

import (
	"log/slog"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/httplatch/httplatch/internal/redistest"
	"github.com/httplatch/httplatch/internal/respproxy"
	"github.com/httplatch/httplatch/lock"
)

const (
	lateBy   = 3 * time.Second // a reply
	farLess  = lateBy / 2      // than that: what others may take, on whatever machine
	generous = 5 * lateBy      // a budget, a third of which is longer than lateBy, and some
	lockers  = 64
	turns    = 20
)

// untold hides that calls return in time, and has a Locker wait for them as it
// does for any store's.
type untold struct{ lock.Store }

// ways are a store as it is, and the twin that shows what it is for.
var ways = map[string]func(lock.Store) lock.Store{
	"in time": func(s lock.Store) lock.Store { return s },
	"untold":  func(s lock.Store) lock.Store { return untold{s} },
}

// busy has lockers callers work, each on a key of its own, until ready is true,
// and for some cycles more. It returns the longest that one took, and for how long
// the machine has kept one waiting meanwhile that nothing else keeps: on its way to
// the server there is no proxy, and nobody beside it.
func busy(t *testing.T, srv *redistest.Server, l *lock.Locker, ready func() bool) (longest, pause time.Duration) {
	t.Helper()
	var longests [lockers]time.Duration
	var all, control sync.WaitGroup
	undisturbed, over := neverShared(open(t, srv.URL())), make(chan struct{})
	control.Go(func() {
		tick := time.NewTicker(time.Millisecond)
		defer tick.Stop()
		for {
			began := time.Now()
			if _, err := undisturbed.Get(timeout(t, patience), keyFor(t)); err != nil {
				t.Error(err)
				return
			}
			pause = max(pause, time.Since(began))
			select {
			case <-over:
				return
			case <-tick.C:
				pause = max(pause, time.Since(began))
			}
		}
	})
	for i := range lockers {
		all.Go(func() {
			for left := turns; left > 0; {
				began := time.Now()
				e, err := l.Acquire(t.Context(), member(t, i))
				if err == nil {
					err = e.Release(t.Context())
				}
				if err != nil {
					t.Error(err)
					return
				}
				longests[i] = max(longests[i], time.Since(began))
				if ready() {
					left--
				}
			}
		})
	}
	all.Wait()
	close(over)
	control.Wait()
	return slices.Max(longests[:]), pause
}

// A reply that is late holds up those behind it on its connection. They are sent
// again at once, over another; and so is the one whose reply it is.
func TestLateReplyAmongMany(t *testing.T) {
	t.Parallel()
	for _, command := range []string{"set", "evalsha"} {
		for name, way := range ways {
			t.Run(command+"/"+name, func(t *testing.T) {
				t.Parallel()
				srv := redistest.Start(t)
				p := respproxy.Start(t, srv.Addr())
				s := alwaysShared(open(t, p.URL()+"?read_timeout=20s"))
				l := lock.New(way(s), lock.WithLogger(slog.New(slog.DiscardHandler)), lock.WithBudget(generous))
				busy(t, srv, l, func() bool { return true }) // so that there are connections
				rule := p.On(respproxy.Match{Name: command, Count: 1}, respproxy.DelayReply(lateBy))
				longest, pause := busy(t, srv, l, func() bool { return rule.Hits() > 0 })
				if name == "in time" {
					require.Less(t, longest, farLess+pause)
				} else {
					require.Greater(t, longest, farLess)
				}
				require.NoError(t, l.Close(timeout(t, 20*time.Second)), "nothing is left behind")
				require.Empty(t, srv.Keys(t), "and there is no orphan")
			})
		}
	}
}

// A key whose replies are always late costs its own caller that, and not those
// who happen to be beside it: what has stalled twice shares nothing.
func TestKeyThatIsAlwaysLate(t *testing.T) {
	t.Parallel()
	srv := redistest.Start(t)
	p := respproxy.Start(t, srv.Addr())
	s := alwaysShared(open(t, p.URL()+"?read_timeout=20s"))
	l := lock.New(s, lock.WithLogger(slog.New(slog.DiscardHandler)), lock.WithBudget(generous))
	busy(t, srv, l, func() bool { return true })
	rule := p.On(respproxy.Match{Name: "set", Key: nameOf(t) + "~late"}, respproxy.DelayReply(lateBy))
	own := make(chan time.Duration, 1)
	go func() {
		began := time.Now()
		e, err := l.Acquire(t.Context(), keyFor(t)+"~late")
		if err != nil {
			t.Error(err)
		}
		own <- time.Since(began)
		_ = e.Release(t.Context())
	}()
	const sends = 3 // two in company, which stall, and one alone, which is waited for
	longest, pause := busy(t, srv, l, func() bool { return rule.Hits() == sends })
	require.Less(t, longest, farLess+pause)
	require.GreaterOrEqual(t, <-own, lateBy)
	require.Equal(t, sends, rule.Hits())
	rule.Remove()
	require.NoError(t, l.Close(timeout(t, 20*time.Second)))
	require.Empty(t, srv.Keys(t))
}
