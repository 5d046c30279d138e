package lock_test

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"slices"
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

// doAll is Locker.DoAll, or a set that is wrong on purpose.
type doAll func(ctx context.Context, l *lock.Locker, keys []string, fn func(ctx context.Context) error) error

func ordered(ctx context.Context, l *lock.Locker, keys []string, fn func(ctx context.Context) error) error {
	return l.DoAll(ctx, keys, fn)
}

// oneLock holds one lock over all keys there are.
func oneLock(ctx context.Context, l *lock.Locker, _ []string, fn func(ctx context.Context) error) error {
	return l.Do(ctx, "everything", fn)
}

// unordered nests locks in the caller's order.
func unordered(ctx context.Context, l *lock.Locker, keys []string, fn func(ctx context.Context) error) error {
	if len(keys) == 0 {
		return fn(ctx)
	}
	return l.Do(ctx, keys[0], func(ctx context.Context) error { return unordered(ctx, l, keys[1:], fn) })
}

// setStorm is a crowd of callers in three processes, each with five of twenty keys at a time.
type setStorm struct {
	run  doAll
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
	err := x.run(ctx, l, keys, func(context.Context) error {
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
	for name, tt := range map[string]struct {
		run   doAll
		wait  time.Duration
		local bool
	}{
		"refused": {run: ordered}, "waiting": {run: ordered, wait: 4 * time.Second},
		"refused, store in this process": {run: ordered, local: true}, "waiting, store in this process": {run: ordered, wait: 4 * time.Second, local: true},
		"one lock, refused": {run: oneLock}, "one lock, waiting": {run: oneLock, wait: 4 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			x := &setStorm{run: tt.run, wait: tt.wait}
			require.Empty(t, x.play(t, tt.local))
			require.Greater(t, x.granted, 50, "disjoint sets run at the same time")
			t.Logf("%d granted in %v, at most %v without a grant", x.granted, *stormLasts, x.gap)
		})
	}
}

// Of callers that come at the same moment to free keys, in any order, one is granted.
func TestSomeSetIsGrantedAtOnce(t *testing.T) {
	t.Parallel()
	require.Zero(t, roundsWithoutGrant(t, ordered))
	require.NotZero(t, roundsWithoutGrant(t, unordered), "the check must find callers that refuse each other")
}

func roundsWithoutGrant(t *testing.T, run doAll) (without int) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		memory := memstore.New()
		var lockers []*lock.Locker
		for range 3 {
			away := fault.New().Every(fault.Slow(time.Millisecond))
			away.Serve(memory)
			lockers = append(lockers, lock.New(away, lock.WithLogger(quiet)))
		}
		keys := []string{"item=1", "item=2", "item=3"}
		for range 50 {
			var callers sync.WaitGroup
			var mu sync.Mutex
			granted := 0
			for i, l := range lockers {
				mine := append(slices.Clone(keys[i:]), keys[:i]...)
				callers.Go(func() {
					err := run(t.Context(), l, mine[:2], func(context.Context) error {
						mu.Lock()
						defer mu.Unlock()
						granted++
						return nil
					})
					if err != nil && !errors.Is(err, lock.ErrHeld) {
						t.Error(err)
					}
				})
			}
			callers.Wait()
			if granted == 0 {
				without++
			}
		}
		for _, l := range lockers {
			require.NoError(t, l.Close(t.Context()))
		}
	})
	return without
}
