package fault

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/httplatch/httplatch/lock"
)

// Keys are the keys of [Work].
var Keys = []string{"k=0", "k=1"}

const (
	workLease  = 3 * time.Second
	workBudget = 300 * time.Millisecond
	workKeep   = time.Hour
	jobs       = 60
)

// Work makes callers of several Lockers work at random from a seed: they lock a key, all keys or
// any of them, hand a key over, call Once, leave, and close a Locker. It checks that no two callers
// hold a key, that every run is the only one, and that no ticket is resumed twice.
//
// The steps are drawn before anything runs, so that they depend on the seed alone. Their results
// depend on the schedule, too.
type Work struct {
	Plan  *rand.Rand
	Rerun bool // Lockers are opened with WithRerunAbandoned
	Locks bool // there is no Once, since the store keeps no receipts

	lockers []*lock.Locker
	mu      sync.Mutex
	holders map[string]context.Context // of the valid lease on each key
	effects map[string]int
	answers map[string]map[string]bool
	found   []string
}

// NewWork returns the work of seed.
func NewWork(seed uint64) *Work {
	return &Work{
		Plan:    rand.New(rand.NewPCG(seed, 1)),
		holders: make(map[string]context.Context),
		effects: make(map[string]int),
		answers: make(map[string]map[string]bool),
	}
}

// Open opens a Locker of a process over store, and others with settings of their own.
func (w *Work) Open(store lock.Store) {
	opts := []lock.Option{
		lock.WithLogger(slog.New(slog.DiscardHandler)), lock.WithLease(workLease), lock.WithBudget(workBudget),
		lock.WithMaxHold(10 * time.Second), lock.WithKeep(workKeep), lock.WithDetached(),
	}
	if w.Plan.IntN(2) == 0 {
		opts = append(opts, lock.WithWait(w.between(time.Millisecond, 3*time.Second)))
	}
	if w.Rerun {
		opts = append(opts, lock.WithRerunAbandoned())
	}
	l := lock.New(store, opts...)
	w.lockers = append(w.lockers, l, l.With(lock.WithMaxHold(workLease+time.Second)),
		l.With(lock.WithWait(w.between(time.Millisecond, 3*time.Second)), lock.WithBudget(w.between(workBudget/5, workBudget))))
}

// Run does the work, and returns when all callers have returned.
func (w *Work) Run(ctx context.Context) {
	var all sync.WaitGroup
	for i := range jobs {
		all.Go(w.job(ctx, i))
	}
	if w.Plan.IntN(3) == 0 {
		all.Go(w.closeEarly(ctx))
	}
	all.Wait()
}

// Bad records a violation.
func (w *Work) Bad(format string, args ...any) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.found = append(w.found, fmt.Sprintf(format, args...))
}

func (w *Work) between(low, high time.Duration) time.Duration {
	return low + time.Duration(w.Plan.Int64N(int64(high-low)))
}

// job returns the work of one caller, under one of the keys, or under all.
func (w *Work) job(ctx context.Context, i int) func() {
	l, key := w.lockers[w.Plan.IntN(len(w.lockers))], Keys[w.Plan.IntN(len(Keys))]
	start, work, how := w.between(0, 20*time.Second), w.between(0, 200*time.Millisecond), w.Plan.IntN(10)
	if w.Plan.IntN(4) == 0 {
		work = w.between(0, 8*time.Second)
	}
	patience := time.Hour
	if w.Plan.IntN(3) == 0 {
		patience = w.between(time.Millisecond, time.Second)
	}
	once := w.Plan.IntN(3) == 0 && !w.Locks
	several := w.Plan.IntN(6)
	then := w.planHandOver()
	return func() {
		time.Sleep(start)
		ctx, cancel := context.WithTimeout(ctx, patience)
		defer cancel()
		if once {
			w.runOnce(ctx, l, key, work, how < 4, "answer "+strconv.Itoa(i))
			return
		}
		switch several {
		case 0:
			_ = l.DoAll(ctx, Keys, func(ctx context.Context) error {
				set, _ := lock.SetFromContext(ctx)
				w.lock(ctx, set, work, how, nil, Keys...)
				return nil
			})
		case 1:
			_ = l.DoAny(ctx, Keys, func(ctx context.Context, key string) error {
				lease, _ := lock.FromContext(ctx)
				w.lock(ctx, lease, work, how, then, key)
				return nil
			})
		default:
			_ = l.Do(ctx, key, func(ctx context.Context) error {
				lease, _ := lock.FromContext(ctx)
				w.lock(ctx, lease, work, how, then, key)
				return nil
			})
		}
	}
}

// held is a *lock.Lease or a *lock.Set.
type held interface {
	Extend(ctx context.Context) error
	Settle(ctx context.Context, receipt []byte, keep time.Duration) error
}

// lock works under keys, and may extend, settle or hand them over.
func (w *Work) lock(ctx context.Context, lease held, work time.Duration, how int, then func(context.Context, *lock.Lease), keys ...string) {
	w.hold(ctx, work, keys...)
	single, _ := lease.(*lock.Lease)
	switch how {
	case 2, 3:
		if single != nil && !w.Locks {
			then(context.WithoutCancel(ctx), single)
		}
	case 0:
		_ = lease.Extend(ctx)
	case 1:
		_ = lease.Settle(ctx, nil, 500*time.Millisecond)
	}
}

// planHandOver draws a hand-over: the key waits for a while, and two callers are given the ticket,
// as by a queue that delivers twice.
func (w *Work) planHandOver() func(context.Context, *lock.Lease) {
	type delivery struct {
		to          *lock.Locker
		after, work time.Duration
		settles     bool
	}
	patience, twice := w.between(time.Millisecond, 4*time.Second), make([]delivery, 2)
	for i := range twice {
		twice[i] = delivery{
			w.lockers[w.Plan.IntN(len(w.lockers))], w.between(0, time.Second), w.between(0, 4*time.Second), w.Plan.IntN(8) == 0,
		}
	}
	return func(ctx context.Context, lease *lock.Lease) {
		key := lease.Key()
		ticket, err := lease.HandOver(ctx, patience)
		if err != nil {
			return
		}
		if lease.Context().Err() == nil {
			w.Bad("a lease on %s goes on after it was handed over", key)
		}
		var resumed atomic.Int32
		var all sync.WaitGroup
		for _, d := range twice {
			all.Go(func() {
				time.Sleep(d.after)
				again, err := d.to.Resume(ctx, ticket)
				if err != nil {
					return
				}
				if resumed.Add(1) > 1 {
					w.Bad("a ticket of %s was resumed twice", key)
				}
				w.hold(again.Context(), d.work, key)
				if d.settles {
					_ = again.Settle(ctx, nil, 500*time.Millisecond)
				}
				_ = again.Release(ctx)
			})
		}
		all.Wait()
	}
}

// hold works under keys, and looks for another lease on them that is valid.
func (w *Work) hold(ctx context.Context, work time.Duration, keys ...string) {
	for _, key := range keys {
		w.mu.Lock()
		other := w.holders[key]
		w.holders[key] = ctx
		w.mu.Unlock()
		if other != nil && other.Err() == nil && ctx.Err() == nil {
			w.Bad("two valid leases on %s", key)
		}
	}
	time.Sleep(work)
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, key := range keys {
		if w.holders[key] == ctx {
			delete(w.holders, key)
		}
	}
}

func (w *Work) runOnce(ctx context.Context, l *lock.Locker, key string, work time.Duration, fails bool, answer string) {
	receipt, _, err := l.Once(ctx, key, []byte("request"), func(context.Context) ([]byte, error) {
		time.Sleep(work)
		if fails {
			return nil, errors.New("fails")
		}
		w.mu.Lock()
		defer w.mu.Unlock()
		w.effects[key]++
		return []byte(answer), nil
	})
	if err != nil {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.answers[key] == nil {
		w.answers[key] = make(map[string]bool)
	}
	w.answers[key][string(receipt)] = true
}

func (w *Work) closeEarly(ctx context.Context) func() {
	l, at, patience := w.lockers[w.Plan.IntN(len(w.lockers))], w.between(0, 25*time.Second), w.between(0, 3*time.Second)
	return func() {
		time.Sleep(at)
		ctx, cancel := context.WithTimeout(ctx, patience)
		defer cancel()
		_ = l.Close(ctx)
	}
}

// Rest waits until all calls must have landed, over a network without faults. Then it closes the
// Lockers, and returns the violations, including entries that are left on servers.
func (w *Work) Rest(ctx context.Context, about lock.Description, servers ...lock.Store) []string {
	time.Sleep(30*time.Second + about.MaxLag)
	for _, key := range Keys {
		for i, s := range servers {
			if e, err := s.Get(ctx, key); err != nil || e.State != lock.Free {
				w.Bad("at rest, %s is %v by %s for %v on server %d, %v", key, e.State, e.Token, e.Left, i, err)
			}
		}
		for _, l := range w.lockers {
			err := l.Do(ctx, key, func(context.Context) error { return nil })
			if err != nil && !errors.Is(err, lock.ErrClosed) {
				w.Bad("at rest: %v", err)
			}
		}
		if !w.Rerun && (w.effects[key] > 1 || len(w.answers[key]) > 1) {
			w.Bad("%d effects and the answers %v of %s", w.effects[key], w.answers[key], key)
		}
	}
	for _, l := range w.lockers {
		if err := l.Close(ctx); err != nil {
			w.Bad("close: %v", err)
		}
	}
	return w.found
}
