package lock_test

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/httplatch/httplatch/lock"
	"github.com/httplatch/httplatch/lock/internal/testkit/fault"
	"github.com/httplatch/httplatch/lock/memstore"
)

func TestWaitersAreServedInOrder(t *testing.T) {
	bubble(t, func(t *testing.T, _ *fault.Store, open func(...lock.Option) *lock.Locker) {
		l := open(lock.WithWait(time.Minute))
		var mu sync.Mutex
		var order []int
		var wg sync.WaitGroup
		for i := range 20 {
			wg.Go(func() {
				err := l.Do(context.Background(), key, func(context.Context) error {
					mu.Lock()
					order = append(order, i)
					mu.Unlock()
					time.Sleep(100 * time.Millisecond)
					return nil
				})
				if err != nil {
					t.Error(err)
				}
			})
			synctest.Wait()
		}
		began := time.Now()
		wg.Wait()
		require.True(t, slices.IsSorted(order), "%v", order)
		require.Len(t, order, 20)
		require.Equal(t, 2*time.Second, time.Since(began), "no time between two holders")
	})
}

func TestWaitersAreBounded(t *testing.T) {
	bubble(t, func(t *testing.T, s *fault.Store, open func(...lock.Option) *lock.Locker) {
		l := open(lock.WithWait(10 * time.Second))
		e := acquired(t, l, key)
		ctx, cancel := context.WithCancel(t.Context())
		var wg sync.WaitGroup
		for range 64 {
			wg.Go(func() {
				_, err := l.Acquire(ctx, key)
				if !errors.Is(err, context.Canceled) {
					t.Error(err)
				}
			})
		}
		synctest.Wait()
		began := time.Now()
		_, err := l.Acquire(t.Context(), key)
		require.ErrorIs(t, err, lock.ErrHeld)
		require.Zero(t, time.Since(began), "the 65th is refused at once")
		require.Equal(t, 1, s.Count(fault.Claim), "no caller in the queue asks the store")
		cancel()
		wg.Wait()
		_, err = l.Acquire(t.Context(), key)
		require.ErrorIs(t, err, lock.ErrHeld)
		require.Equal(t, 10*time.Second, time.Since(began))
		require.NoError(t, e.Release(t.Context()))
	})
}

// A waiter that leaves at the moment at which it is served passes the key on.
func TestWaiterThatLeavesPassesTheKeyOn(t *testing.T) {
	bubble(t, func(t *testing.T, _ *fault.Store, open func(...lock.Option) *lock.Locker) {
		l := open(lock.WithWait(time.Minute))
		for range 100 {
			e := acquired(t, l, key)
			ctx, cancel := context.WithCancel(t.Context())
			var wg sync.WaitGroup
			wg.Go(func() {
				if e, err := l.Acquire(ctx, key); err == nil {
					_ = e.Release(context.Background())
				}
			})
			synctest.Wait()
			wg.Go(cancel)
			wg.Go(func() { _ = e.Release(context.Background()) })
			wg.Wait()
			granted(t, l)
		}
	})
}

func TestWaitForAnotherProcess(t *testing.T) {
	bubble(t, func(t *testing.T, s *fault.Store, open func(...lock.Option) *lock.Locker) {
		here, there := open(), open(lock.WithWait(time.Minute))
		e := acquired(t, here, key)
		time.AfterFunc(4*lease, func() { _ = e.Release(context.Background()) })
		began := time.Now()
		var wg sync.WaitGroup
		for range 5 {
			wg.Go(func() {
				if err := there.Do(context.Background(), key, func(ctx context.Context) error { return ctx.Err() }); err != nil {
					t.Error(err)
				}
			})
		}
		wg.Wait()
		require.Less(t, time.Since(began), 4*lease+time.Second)
		require.Less(t, s.Count(fault.Claim), 120, "one contender per process and key")
	})
}

func TestWaitIsBounded(t *testing.T) {
	bubble(t, func(t *testing.T, _ *fault.Store, open func(...lock.Option) *lock.Locker) {
		here, there := open(), open(lock.WithWait(time.Second))
		e := acquired(t, here, key)
		began := time.Now()
		_, err := there.Acquire(t.Context(), key)
		require.ErrorIs(t, err, lock.ErrHeld)
		require.Equal(t, time.Second, time.Since(began))
		ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
		defer cancel()
		_, err = there.Acquire(ctx, key)
		require.ErrorIs(t, err, lock.ErrHeld)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.NoError(t, e.Release(t.Context()))
	})
}

// Waiters of Once get the receipt. If the first run fails, the waiters in its process fail
// too, and the waiters in other processes run.
func TestOnceWaiters(t *testing.T) {
	for name, fails := range map[string]bool{"settled": false, "released": true} {
		bubbleCase(t, name, func(t *testing.T, _ *fault.Store, open func(...lock.Option) *lock.Locker) {
			var f effect
			lockers := []*lock.Locker{open(lock.WithWait(time.Minute)), open(lock.WithWait(time.Minute))}
			work := func(context.Context) ([]byte, error) {
				n := f.runs.Add(1)
				time.Sleep(time.Second)
				if fails && n == 1 {
					return nil, errors.New("the first one fails")
				}
				return []byte("answer"), nil
			}
			var wg sync.WaitGroup
			var mu sync.Mutex
			failed, answers := 0, 0
			for i := range 40 {
				wg.Go(func() {
					receipt, _, err := lockers[i%2].Once(context.Background(), key, print1, work)
					mu.Lock()
					defer mu.Unlock()
					switch {
					case err != nil:
						failed++
					case string(receipt) == "answer":
						answers++
					}
				})
			}
			wg.Wait()
			if fails {
				require.EqualValues(t, 2, f.runs.Load())
				require.Equal(t, 20, failed, "all that waited in its process")
				require.Equal(t, 20, answers)
				return
			}
			require.EqualValues(t, 1, f.runs.Load())
			require.Equal(t, 40, answers)
		})
	}
}

// leaving is a context that ends when its caller begins to wait for its end.
type leaving struct {
	context.Context //nolint:containedctx // it is one
	leave           func()
	ended           chan struct{}
}

func (c *leaving) Done() <-chan struct{} {
	select {
	case <-c.ended:
	default:
		close(c.ended)
		c.leave()
	}
	return c.ended
}

func (c *leaving) Err() error {
	select {
	case <-c.ended:
		return context.Canceled
	default:
		return nil
	}
}

// A waiter that leaves in the very moment in which it is given the key does not
// keep it. Both are so when it begins to wait here, and it looks at either first.
func TestAWaiterThatLeavesDoesNotKeepTheKeyItWasGiven(t *testing.T) {
	t.Parallel()
	l := lock.New(memstore.New())
	waits := l.With(lock.WithWait(time.Minute))
	for range 100 {
		e := acquired(t, l, key)
		ctx := &leaving{Context: t.Context(), ended: make(chan struct{})}
		ctx.leave = func() { require.NoError(t, e.Release(t.Context())) }
		_, err := waits.Acquire(ctx, key)
		require.ErrorIs(t, err, context.Canceled)
		granted(t, l)
	}
	require.NoError(t, l.Close(t.Context()))
}

// overloaded is a store that refuses by admission.
func overloaded(context.Context, func() error) error {
	return errors.Join(lock.ErrNotApplied, lock.ErrDenied, errors.New("overload"))
}

var unserved = map[string]fault.Func{"no answer": fault.HangRequest, "reply lost": fault.HangReply, "refused by admission": overloaded}

// Callers that wait for a holder wait on while the store does not serve a poll, wherever
// the holder is, and each gets the key in the end.
func TestAPollThatIsNotServedEndsNoWait(t *testing.T) {
	const callers = 30
	for name, why := range unserved {
		for where, elsewhere := range map[string]bool{"another process": true, "this process": false} {
			bubbleCase(t, name+", held by "+where, func(t *testing.T, s *fault.Store, open func(...lock.Option) *lock.Locker) {
				l := open()
				holder := l
				if elsewhere {
					holder = open()
				}
				e := acquired(t, holder, key)
				patient := l.With(lock.WithWait(20 * time.Second))
				var all sync.WaitGroup
				for range callers {
					all.Go(func() {
						assert.NoError(t, patient.Do(t.Context(), key, func(context.Context) error { return nil }))
					})
				}
				time.Sleep(time.Second)
				s.Every(why, fault.Claim)
				require.NoError(t, e.Release(t.Context()))
				time.Sleep(3 * time.Second)
				s.Every(nil, fault.Claim)
				all.Wait()
			})
		}
	}
}

// A wait ends with its own time, and the error has the latest facts: the store does not serve, and
// the holder that it had named before.
func TestAWaitOverASilentStoreEndsWithItsTime(t *testing.T) {
	for name, why := range unserved {
		bubbleCase(t, name, func(t *testing.T, s *fault.Store, open func(...lock.Option) *lock.Locker) {
			free := heldElsewhere(t, open)
			l := open(lock.WithBudget(budget))
			time.AfterFunc(time.Second, func() { s.Every(why, fault.Claim) })
			var all sync.WaitGroup
			for i := range 10 {
				wait := time.Duration(5+i) * time.Second
				all.Go(func() {
					began := time.Now()
					_, err := l.With(lock.WithWait(wait)).Acquire(t.Context(), key)
					assert.ErrorIs(t, err, lock.ErrUnavailable)
					assert.ErrorContains(t, err, "known before: lock: key is held")
					assert.GreaterOrEqual(t, time.Since(began), wait)
					assert.LessOrEqual(t, time.Since(began), wait+budget)
				})
			}
			ctx, cancel := context.WithTimeout(t.Context(), 4*time.Second)
			defer cancel()
			began := time.Now()
			_, err := l.With(lock.WithWait(time.Minute)).Acquire(ctx, key)
			assert.ErrorIs(t, err, lock.ErrUnavailable)
			assert.ErrorIs(t, err, context.DeadlineExceeded)
			assert.Equal(t, 4*time.Second, time.Since(began))

			began = time.Now()
			_, err = l.Acquire(t.Context(), key)
			assert.ErrorIs(t, err, lock.ErrUnavailable)
			assert.LessOrEqual(t, time.Since(began), 2*budget, "one that does not wait hears of the next poll")
			all.Wait()
			s.Every(nil, fault.Claim)
			free()
		})
	}
}

// The queue is bounded while the store is silent, too.
func TestWaitersOverASilentStoreAreBounded(t *testing.T) {
	bubble(t, func(t *testing.T, s *fault.Store, open func(...lock.Option) *lock.Locker) {
		free := heldElsewhere(t, open)
		l := open(lock.WithWait(20 * time.Second))
		ctx, cancel := context.WithCancel(t.Context())
		var all sync.WaitGroup
		all.Go(func() { _, _ = l.Acquire(ctx, key) })
		time.Sleep(time.Second)
		s.Every(fault.HangRequest, fault.Claim)
		left := make(chan error, 10*meeting)
		for range cap(left) {
			all.Go(func() {
				_, err := l.Acquire(ctx, key)
				left <- err
			})
		}
		time.Sleep(3 * time.Second)
		require.Len(t, left, cap(left)-meeting)
		for range len(left) {
			require.ErrorIs(t, <-left, lock.ErrUnavailable)
		}
		cancel()
		all.Wait()
		s.Every(nil, fault.Claim)
		free()
	})
}
