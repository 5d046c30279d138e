package lock_test

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/httplatch/httplatch/lock"
	"github.com/httplatch/httplatch/lock/memstore"
)

var (
	firstSeed = flag.Uint64("seed", 0, "first seed of the stress tests")
	seeds     = flag.Uint64("seeds", 200, "number of seeds of the stress tests")
)

// Random work of several lockers over a network that loses, delays and refuses
// at random, with callers that leave and lockers that are closed in between.
func TestStress(t *testing.T) {
	t.Parallel()
	for seed := *firstSeed; seed < *firstSeed+*seeds; seed++ {
		require.Empty(t, stress(t, seed, func() lock.Store { return memstore.New() }), "seed %d", seed)
	}
}

// The twin: a store that releases whatever is there.
func TestStressCatchesReleaseWithoutOwner(t *testing.T) {
	for seed := range uint64(200) {
		found := stress(t, seed, func() lock.Store { return ownerless{memstore.New()} })
		if len(found) > 0 {
			t.Logf("seed %d: %s", seed, found[0])
			return
		}
	}
	t.Error("nothing was found in 200 seeds")
}

type ownerless struct{ lock.Store }

func (s ownerless) Release(ctx context.Context, key, _ string) (bool, error) {
	e, err := s.Get(ctx, key)
	if err != nil || e.State == lock.Free {
		return false, err
	}
	return s.Store.Release(ctx, key, e.Token)
}

// stress runs one seed and returns what was wrong.
func stress(t *testing.T, seed uint64, open func() lock.Store) (found []string) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		st := &stressed{
			plan:    rand.New(rand.NewPCG(seed, 1)),
			network: newNetwork(open(), seed),
			holders: make(map[string]context.Context),
			effects: make(map[string]int),
			answers: make(map[string]map[string]bool),
		}
		st.openLockers()
		var all sync.WaitGroup
		for i := range 60 {
			all.Go(st.job(i))
		}
		if st.plan.IntN(3) == 0 {
			all.Go(st.closeEarly())
		}
		all.Wait()
		st.network.calm()
		time.Sleep(30*time.Second + st.network.Describe().MaxLag)
		st.atRest(t)
		found = st.found
	})
	return found
}

// stressed is one run. Its plan is drawn before anything runs, so that a seed
// says what is done; what becomes of it depends on the schedule too.
type stressed struct {
	plan    *rand.Rand
	network *network
	lockers []*lock.Locker
	rerun   bool
	locks   bool // the store has no more

	mu      sync.Mutex
	holders map[string]context.Context // of the valid lease on each key
	effects map[string]int
	answers map[string]map[string]bool
	found   []string
}

func (st *stressed) between(low, high time.Duration) time.Duration {
	return low + time.Duration(st.plan.Int64N(int64(high-low)))
}

func (st *stressed) bad(format string, args ...any) {
	st.mu.Lock()
	defer st.mu.Unlock()
	st.found = append(st.found, fmt.Sprintf(format, args...))
}

func (st *stressed) openLockers() {
	st.rerun = st.plan.IntN(3) == 0
	for range 2 + st.plan.IntN(2) {
		opts := []lock.Option{
			lock.WithLogger(quiet), lock.WithLease(lease), lock.WithBudget(budget), lock.WithMaxHold(10 * time.Second),
			lock.WithKeep(keep), lock.WithDetached(),
		}
		if st.plan.IntN(2) == 0 {
			opts = append(opts, lock.WithWait(st.between(time.Millisecond, 3*time.Second)))
		}
		if st.rerun {
			opts = append(opts, lock.WithRerunAbandoned())
		}
		l := lock.New(st.network, opts...)
		st.lockers = append(st.lockers, l, l.With(lock.WithMaxHold(lease+time.Second)),
			l.With(lock.WithWait(st.between(time.Millisecond, 3*time.Second)), lock.WithBudget(st.between(budget/5, budget))))
	}
}

// job is one caller that does one thing under one of two keys.
func (st *stressed) job(i int) func() {
	l, key := st.lockers[st.plan.IntN(len(st.lockers))], "k="+strconv.Itoa(st.plan.IntN(2))
	start, work, how := st.between(0, 20*time.Second), st.between(0, 200*time.Millisecond), st.plan.IntN(10)
	if st.plan.IntN(4) == 0 {
		work = st.between(0, 8*time.Second)
	}
	patience := time.Hour
	if st.plan.IntN(3) == 0 {
		patience = st.between(time.Millisecond, time.Second)
	}
	once := st.plan.IntN(3) == 0 && !st.locks
	return func() {
		time.Sleep(start)
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		if once {
			st.runOnce(ctx, l, key, work, how < 4, "answer "+strconv.Itoa(i))
			return
		}
		_ = l.Do(ctx, key, func(ctx context.Context) error {
			st.hold(ctx, key, work)
			lease, _ := lock.FromContext(ctx)
			switch how {
			case 0:
				_ = lease.Extend(ctx)
			case 1:
				_ = lease.Settle(ctx, nil, 500*time.Millisecond)
			}
			return nil
		})
	}
}

// hold works under a lease, and looks for another one that is valid.
func (st *stressed) hold(ctx context.Context, key string, work time.Duration) {
	st.mu.Lock()
	other := st.holders[key]
	st.holders[key] = ctx
	st.mu.Unlock()
	if other != nil && other.Err() == nil && ctx.Err() == nil {
		st.bad("two valid leases on %s", key)
	}
	time.Sleep(work)
	st.mu.Lock()
	defer st.mu.Unlock()
	if st.holders[key] == ctx {
		delete(st.holders, key)
	}
}

func (st *stressed) runOnce(ctx context.Context, l *lock.Locker, key string, work time.Duration, fails bool, answer string) {
	receipt, _, err := l.Once(ctx, key, print1, func(context.Context) ([]byte, error) {
		time.Sleep(work)
		if fails {
			return nil, errors.New("fails")
		}
		st.mu.Lock()
		defer st.mu.Unlock()
		st.effects[key]++
		return []byte(answer), nil
	})
	if err != nil {
		return
	}
	st.mu.Lock()
	defer st.mu.Unlock()
	if st.answers[key] == nil {
		st.answers[key] = make(map[string]bool)
	}
	st.answers[key][string(receipt)] = true
}

func (st *stressed) closeEarly() func() {
	l, at, patience := st.lockers[st.plan.IntN(len(st.lockers))], st.between(0, 25*time.Second), st.between(0, 3*time.Second)
	return func() {
		time.Sleep(at)
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		_ = l.Close(ctx)
	}
}

// atRest checks what must be so when everything is over.
func (st *stressed) atRest(t *testing.T) {
	t.Helper()
	for _, key := range []string{"k=0", "k=1"} {
		if e, err := st.network.Get(t.Context(), key); err != nil || e.State != lock.Free {
			st.bad("at rest, %s is %v by %s for %v, %v", key, e.State, e.Token, e.Left, err)
		}
		for _, l := range st.lockers {
			err := l.Do(t.Context(), key, func(context.Context) error { return nil })
			if err != nil && !errors.Is(err, lock.ErrClosed) {
				st.bad("at rest: %v", err)
			}
		}
		if !st.rerun && (st.effects[key] > 1 || len(st.answers[key]) > 1) {
			st.bad("%d effects and the answers %v of %s", st.effects[key], st.answers[key], key)
		}
	}
	for _, l := range st.lockers {
		if err := l.Close(t.Context()); err != nil {
			st.bad("close: %v", err)
		}
	}
}
