package lock_test

import (
	"context"
	"flag"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/httplatch/httplatch/internal/testkit/testmain"
	"github.com/httplatch/httplatch/lock"
	"github.com/httplatch/httplatch/lock/internal/testkit/fault"
	"github.com/httplatch/httplatch/lock/memstore"
)

var (
	firstSeed = flag.Uint64("seed", 0, "first seed of the tests at random")
	seeds     = flag.Uint64("seeds", 100, "number of seeds of the tests at random; make faults tries 300")
)

// Random work of several Lockers over a network with random faults. Callers leave, and Lockers are closed. Sets are
// claimed at once, or, over every other server, in order.
func TestStress(t *testing.T) {
	testmain.SkipIn(t, testmain.Quick, "searches at random")
	t.Parallel()
	for seed := *firstSeed; seed < *firstSeed+*seeds; seed++ {
		require.Empty(t, stress(t, seed, func() lock.Store {
			if seed%2 == 1 {
				return struct{ lock.Store }{memstore.New()}
			}
			return memstore.New()
		}), "seed %d", seed)
	}
}

// The twins: stores that are wrong on purpose, and what is found.
func TestStressCatches(t *testing.T) {
	testmain.SkipIn(t, testmain.Quick, "searches at random")
	t.Parallel()
	for name, tt := range map[string]struct {
		open func() lock.Store
		want string
	}{
		"a release by any token": {func() lock.Store { return ownerless{memstore.New()} }, ""},
		"a ticket resumed twice": {func() lock.Store { return giver{memstore.New()} }, "resumed twice"},
		"a set claimed in part":  {func() lock.Store { return partial{memstore.New()} }, "two valid leases"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for seed := range uint64(200) {
				for _, found := range stress(t, seed, tt.open) {
					if strings.Contains(found, tt.want) {
						t.Logf("seed %d: %s", seed, found)
						return
					}
				}
			}
			t.Error("nothing was found in 200 seeds")
		})
	}
}

// partial claims all keys of a set but the last.
type partial struct{ *memstore.Store }

func (s partial) ClaimSet(ctx context.Context, keys []string, claims []lock.Claim) (lock.Entry, error) {
	last := max(len(keys)-1, 1)
	return s.Store.ClaimSet(ctx, keys[:last], claims[:last])
}

// giver replaces a holder with any token.
type giver struct{ lock.Store }

func (s giver) Claim(ctx context.Context, key string, c lock.Claim) (lock.Entry, error) {
	if c.ReplacesHeld {
		e, err := s.Get(ctx, key)
		if err != nil {
			return lock.Entry{}, err
		}
		if e.Token != c.Token {
			c.Replaces = e.Token
		}
	}
	return s.Store.Claim(ctx, key, c)
}

type ownerless struct{ lock.Store }

func (s ownerless) Release(ctx context.Context, key string, _ lock.Claim) (bool, error) {
	e, err := s.Get(ctx, key)
	if err != nil || e.State == lock.Free {
		return false, err
	}
	return s.Store.Release(ctx, key, lock.Claim{Token: e.Token})
}

// stress runs one seed and returns the violations.
func stress(t *testing.T, seed uint64, open func() lock.Store) (found []string) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		w := fault.NewWork(seed)
		w.Rerun = w.Plan.IntN(3) == 0
		server := open()
		network := fault.NewNetwork(server, seed)
		for range 2 + w.Plan.IntN(2) {
			w.Open(network)
		}
		w.Run(context.Background())
		network.Improve(0)
		found = w.Rest(t.Context(), network.Describe(), server)
	})
	return found
}

// setStorm is a crowd of callers in three processes, each with five of twenty keys at a time.
type setStorm struct {
	wait time.Duration // 0: the callers are refused, and come again a little later

	mu      sync.Mutex
	holders map[string]int
	granted int
	last    time.Time
	gap     time.Duration // the longest without a grant
	broken  map[string]bool
}

var stormLasts = flag.Duration("storm", 2*time.Second, "of virtual time, how long callers come in the storms of sets")

const (
	stormCallers = 200
	stormWork    = 10 * time.Millisecond

	// stormGap is the longest time without a grant. A holder works for 10 ms, and a set takes
	// some round trips of 1 ms and a poll.
	stormGap = time.Second
)

func (x *setStorm) breaks(format string, args ...any) { x.broken[fmt.Sprintf(format, args...)] = true }

// play returns the promises that were broken.
func (x *setStorm) play(t *testing.T, local bool) []string {
	t.Helper()
	x.holders, x.broken = make(map[string]int), make(map[string]bool)
	synctest.Test(t, func(t *testing.T) {
		memory := memstore.New()
		var lockers []*lock.Locker
		for range 3 {
			var s lock.Store = memory
			if !local {
				away := fault.New().Every(fault.Slow(time.Millisecond))
				away.Serve(memory)
				s = away
			}
			opts := []lock.Option{lock.WithLogger(quiet), lock.WithLease(time.Minute)}
			if x.wait > 0 {
				opts = append(opts, lock.WithWait(x.wait))
			}
			lockers = append(lockers, lock.New(s, opts...))
		}
		x.last = time.Now()
		end := x.last.Add(*stormLasts)
		var callers sync.WaitGroup
		for i := range stormCallers {
			callers.Go(func() {
				for time.Now().Before(end) {
					x.once(t.Context(), lockers[i%len(lockers)])
				}
			})
		}
		callers.Wait()
		x.progress(end)
		for _, l := range lockers {
			closing, cancel := context.WithTimeout(t.Context(), time.Second)
			_ = l.Close(closing)
			cancel()
		}
		for e, err := range memory.List(t.Context()) {
			require.NoError(t, err)
			if e.State == lock.Held {
				x.breaks("all or none: a key is still taken")
			}
		}
	})
	var broken []string
	for b := range x.broken {
		broken = append(broken, b)
	}
	slices.Sort(broken)
	return broken
}

func (x *setStorm) once(ctx context.Context, l *lock.Locker) {
	var keys []string
	for _, n := range rand.Perm(20)[:5] {
		keys = append(keys, fmt.Sprint("item=", n))
	}
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second) // for a set that never gives its keys back
	defer cancel()
	err := l.DoAll(ctx, keys, func(context.Context) error {
		x.enter(keys)
		time.Sleep(stormWork)
		x.leave(keys)
		return nil
	})
	if err != nil {
		time.Sleep(time.Millisecond + rand.N(100*time.Millisecond))
	}
}

// progress checks the time without a grant until then.
func (x *setStorm) progress(until time.Time) {
	x.gap = max(x.gap, until.Sub(x.last))
	if until.Sub(x.last) > stormGap {
		x.breaks("progress: no caller was granted for a second")
	}
	x.last = until
}

func (x *setStorm) enter(keys []string) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.progress(time.Now())
	x.granted++
	for _, key := range keys {
		if x.holders[key]++; x.holders[key] > 1 {
			x.breaks("one-holder: two sets have one key")
		}
	}
}

func (x *setStorm) leave(keys []string) {
	x.mu.Lock()
	defer x.mu.Unlock()
	for _, key := range keys {
		x.holders[key]--
	}
}

// Two hundred callers with overlapping sets: no key is in two sets, some caller is granted all
// the time, and nothing is left behind.
func TestStormOfSets(t *testing.T) {
	testmain.SkipIn(t, testmain.Short, "a crowd of 200 callers")
	t.Parallel()
	for name, wait := range map[string]time.Duration{"refused": 0, "waiting": 4 * time.Second} {
		for _, local := range []bool{true, false} {
			t.Run(fmt.Sprintf("%s, store in this process: %v", name, local), func(t *testing.T) {
				t.Parallel()
				x := &setStorm{wait: wait}
				require.Empty(t, x.play(t, local))
				require.Greater(t, x.granted, 50, "disjoint sets run at the same time")
				t.Logf("%d granted in %v, at most %v without a grant", x.granted, *stormLasts, x.gap)
			})
		}
	}
}
