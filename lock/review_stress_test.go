package lock_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/httplatch/httplatch/lock"
)

func randomFault(r *rand.Rand) fault {
	switch r.IntN(12) {
	case 0:
		return loseReply
	case 1:
		return loseRequest
	case 2:
		return refuse
	case 3:
		return hangReply
	case 4:
		return hangRequest
	case 5:
		return slow(time.Duration(r.IntN(400)) * time.Millisecond)
	case 6:
		return late(time.Duration(r.IntN(4500)) * time.Millisecond)
	case 7:
		d := time.Duration(r.IntN(9000)) * time.Millisecond
		return stuck(d)
	case 8:
		d := time.Duration(r.IntN(300)) * time.Millisecond
		return func(_ context.Context, apply func() error) error { time.Sleep(d); return apply() }
	}
	return nil
}

// TestStressReview: REVIEW_SEEDS=from:to
func TestStressReview(t *testing.T) {
	from, to := 0, 300
	if v := os.Getenv("REVIEW_SEEDS"); v != "" {
		fmt.Sscanf(v, "%d:%d", &from, &to)
	}
	for seed := from; seed < to; seed++ {
		stress(t, uint64(seed))
		if t.Failed() {
			t.Fatalf("seed %d", seed)
		}
	}
}

func stress(t *testing.T, seed uint64) {
	synctest.Test(t, func(t *testing.T) {
		r := rand.New(rand.NewPCG(seed, 1))
		s := newScripted()
		var mu sync.Mutex
		rate := 0.1 + 0.5*r.Float64()
		calm := false
		chaos := func(ctx context.Context, apply func() error) error {
			mu.Lock()
			var f fault
			if !calm && r.Float64() < rate {
				f = randomFault(r)
			}
			lag := time.Duration(r.IntN(5)) * time.Millisecond
			mu.Unlock()
			time.Sleep(lag)
			if f == nil {
				return apply()
			}
			return f(ctx, apply)
		}
		net := &network{s.store, chaos}
		rerun := r.IntN(3) == 0
		var lockers []*lock.Locker
		n := 2 + r.IntN(2)
		for range n {
			opts := []lock.Option{lock.WithLogger(quiet), lock.WithLease(lease), lock.WithBudget(budget), lock.WithMaxHold(10 * time.Second), lock.WithKeep(keep), lock.WithDetached()}
			if r.IntN(2) == 0 {
				opts = append(opts, lock.WithWait(time.Duration(1+r.IntN(3000))*time.Millisecond))
			}
			if rerun {
				opts = append(opts, lock.WithRerunAbandoned())
			}
			l := lock.New(net, opts...)
			lockers = append(lockers, l, l.With(lock.WithMaxHold(lease+time.Second)))
		}
		type holder struct {
			ctx context.Context
			key string
		}
		active := map[*holder]bool{}
		bad := func(format string, args ...any) {
			t.Errorf("seed %d: "+format, append([]any{seed}, args...)...)
		}
		valid := func(c context.Context) bool { return c.Err() == nil }
		successes := map[string]int{}
		answers := map[string]map[string]bool{}
		duration := func() (time.Duration, int) {
			mu.Lock()
			defer mu.Unlock()
			d := time.Duration(r.IntN(200)) * time.Millisecond
			if r.IntN(4) == 0 {
				d = time.Duration(r.IntN(8000)) * time.Millisecond
			}
			return d, r.IntN(10)
		}
		plan := rand.New(rand.NewPCG(seed, 2))
		var wg sync.WaitGroup
		for i := range 60 {
			l := lockers[plan.IntN(len(lockers))]
			k := "k=" + strconv.Itoa(plan.IntN(2))
			start := time.Duration(plan.IntN(20000)) * time.Millisecond
			once := plan.IntN(3) == 0
			cancelAfter := time.Duration(0)
			if plan.IntN(3) == 0 {
				cancelAfter = time.Duration(1+plan.IntN(1000)) * time.Millisecond
			}
			wg.Go(func() {
				time.Sleep(start)
				ctx, cancel := context.WithCancel(context.Background())
				defer cancel()
				if cancelAfter > 0 {
					defer time.AfterFunc(cancelAfter, cancel).Stop()
				}
				if once {
					fp := print1
					ans := fmt.Sprintf("answer %d", i)
					receipt, _, err := l.Once(ctx, k, fp, func(ctx context.Context) ([]byte, error) {
						d, how := duration()
						time.Sleep(d)
						if how < 4 {
							return nil, errors.New("fails")
						}
						mu.Lock()
						successes[k]++
						mu.Unlock()
						return []byte(ans), nil
					})
					if err == nil {
						mu.Lock()
						if answers[k] == nil {
							answers[k] = map[string]bool{}
						}
						answers[k][string(receipt)] = true
						mu.Unlock()
					}
					return
				}
				_ = l.Do(ctx, k, func(ctx context.Context) error {
					h := &holder{ctx, k}
					mu.Lock()
					for o := range active {
						if o.key == k && valid(o.ctx) {
							bad("two valid holders of %s", k)
						}
					}
					active[h] = true
					mu.Unlock()
					d, how := duration()
					time.Sleep(d)
					mu.Lock()
					delete(active, h)
					mu.Unlock()
					if how == 0 {
						e, _ := lock.FromContext(ctx)
						_ = e.Extend(ctx)
					}
					if how == 1 {
						e, _ := lock.FromContext(ctx)
						_ = e.Settle(ctx, nil, 500*time.Millisecond)
					}
					return nil
				})
			})
		}
		early := plan.IntN(3) == 0
		if early { // Close somewhere in the middle
			at := time.Duration(plan.IntN(25000)) * time.Millisecond
			i := plan.IntN(len(lockers))
			patience := time.Duration(plan.IntN(3000)) * time.Millisecond
			wg.Go(func() {
				time.Sleep(at)
				ctx, cancel := context.WithTimeout(context.Background(), patience)
				defer cancel()
				_ = lockers[i].Close(ctx)
			})
		}
		wg.Wait()
		mu.Lock()
		calm = true
		mu.Unlock()
		time.Sleep(30*time.Second + s.lag)
		synctest.Wait()
		for _, k := range []string{"k=0", "k=1"} {
			if e := s.state(t, k); e.State != lock.Free {
				bad("at rest, %s is %v by %s for %v", k, e.State, e.Token, e.Left)
			}
			for _, l := range lockers {
				if err := l.Do(context.Background(), k, func(context.Context) error { return nil }); err != nil && !errors.Is(err, lock.ErrClosed) {
					bad("at rest: %v", err)
				}
			}
			if !rerun {
				if successes[k] > 1 {
					bad("%d successes of %s", successes[k], k)
				}
				if len(answers[k]) > 1 {
					bad("answers %v", answers[k])
				}
			}
		}
		for _, l := range lockers {
			if err := l.Close(context.Background()); err != nil {
				bad("close: %v", err)
			}
		}
	})
}

// network is like scripted, but a late application shares no memory with the call.
type network struct {
	store lock.Store
	chaos fault
}

func via[T any](ctx context.Context, n *network, call func() (T, error)) (T, error) {
	var mu sync.Mutex
	var v T
	err := n.chaos(ctx, func() error {
		got, err := call()
		mu.Lock()
		defer mu.Unlock()
		v = got
		return err
	})
	mu.Lock()
	defer mu.Unlock()
	return v, err
}

func (n *network) MaxLag() time.Duration { return 5 * time.Second }
func (n *network) Claim(ctx context.Context, key string, c lock.Claim) (lock.Entry, error) {
	return via(ctx, n, func() (lock.Entry, error) { return n.store.Claim(context.WithoutCancel(ctx), key, c) })
}
func (n *network) Renew(ctx context.Context, key string, c lock.Claim) (bool, error) {
	return via(ctx, n, func() (bool, error) { return n.store.Renew(context.WithoutCancel(ctx), key, c) })
}
func (n *network) Settle(ctx context.Context, key, token string, receipt []byte, keep time.Duration) (bool, error) {
	return via(ctx, n, func() (bool, error) {
		return n.store.Settle(context.WithoutCancel(ctx), key, token, receipt, keep)
	})
}
func (n *network) Release(ctx context.Context, key, token string) (bool, error) {
	return via(ctx, n, func() (bool, error) { return n.store.Release(context.WithoutCancel(ctx), key, token) })
}
func (n *network) Get(ctx context.Context, key string) (lock.Entry, error) {
	return via(ctx, n, func() (lock.Entry, error) { return n.store.Get(context.WithoutCancel(ctx), key) })
}
