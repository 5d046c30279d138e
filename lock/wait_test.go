package lock_test

import (
	"context"
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/httplatch/httplatch/lock"
	"github.com/httplatch/httplatch/lock/internal/testkit/fault"
	"github.com/httplatch/httplatch/lock/memstore"
)

// contenders do work under key: under this key alone, under a set, and under any of several keys.
var contenders = map[string]func(ctx context.Context, l *lock.Locker, work func(ctx context.Context) error) error{
	"a key": func(ctx context.Context, l *lock.Locker, work func(ctx context.Context) error) error {
		return l.Do(ctx, key, work)
	},
	"a set": func(ctx context.Context, l *lock.Locker, work func(ctx context.Context) error) error {
		return l.DoAll(ctx, []string{key, setKeys[0]}, work)
	},
	"a permit": func(ctx context.Context, l *lock.Locker, work func(ctx context.Context) error) error {
		return l.DoAny(ctx, []string{key}, func(ctx context.Context, _ string) error { return work(ctx) })
	},
}

func TestWaitersAreServedInOrder(t *testing.T) {
	for of, do := range contenders {
		bubbleCase(t, of, func(t *testing.T, _ *fault.Store, open func(...lock.Option) *lock.Locker) {
			l := open(lock.WithWait(time.Minute))
			var order []int
			var all sync.WaitGroup
			for i := range 20 {
				all.Go(func() {
					assert.NoError(t, do(context.Background(), l, func(context.Context) error {
						order = append(order, i)
						time.Sleep(100 * time.Millisecond)
						return nil
					}))
				})
				synctest.Wait()
			}
			began := time.Now()
			all.Wait()
			require.True(t, slices.IsSorted(order), "%v", order)
			require.Len(t, order, 20)
			require.InDelta(t, 2*time.Second, time.Since(began), float64(50*time.Millisecond), "no time between two holders")
		})
	}
}

func TestWaitersAreBounded(t *testing.T) {
	solo(t, func(t *testing.T, s *fault.Store, l *lock.Locker) {
		e := acquired(t, l, key)
		var all sync.WaitGroup
		for range 64 {
			all.Go(func() { assert.NoError(t, l.Do(t.Context(), key, nothing)) })
		}
		synctest.Wait()
		began := time.Now()
		require.ErrorIs(t, l.Do(t.Context(), key, nil), lock.ErrHeld)
		require.Zero(t, time.Since(began), "the 65th is refused at once")
		require.Equal(t, 1, s.Count(fault.Claim), "no caller in the queue asks the store")
		require.NoError(t, e.Release(t.Context()))
		all.Wait()
	}, lock.WithWait(10*time.Second))
}

// A wait ends with its time, with its caller, whose cause the error has, and with the Locker.
func TestEndOfAWait(t *testing.T) {
	left := errors.New("left")
	for name, end := range map[string]struct {
		stop func(l *lock.Locker, leave context.CancelCauseFunc)
		want error
		took time.Duration
	}{
		"time":   {func(*lock.Locker, context.CancelCauseFunc) {}, lock.ErrHeld, 2 * time.Second},
		"caller": {func(_ *lock.Locker, leave context.CancelCauseFunc) { leave(left) }, left, time.Second},
		"close":  {func(l *lock.Locker, _ context.CancelCauseFunc) { go l.Close(context.Background()) }, lock.ErrClosed, time.Second},
	} {
		for of, do := range contenders {
			for round := range 20 { // both causes of a set that is left end its wait
				bubbleCase(t, name+", "+of, func(t *testing.T, s *fault.Store, open func(...lock.Option) *lock.Locker) {
					l := open(lock.WithWait(2 * time.Second))
					held := acquired(t, []*lock.Locker{l, open()}[round%2], key)
					ctx, leave := context.WithCancelCause(t.Context())
					defer leave(nil)
					var waiters sync.WaitGroup
					for range 3 {
						waiters.Go(func() {
							began := time.Now()
							err := do(ctx, l, nil)
							assert.ErrorIs(t, err, end.want)
							if of == "a key" {
								assert.Equal(t, name != "close", errors.Is(err, lock.ErrHeld))
							}
							assert.InDelta(t, end.took, time.Since(began), float64(10*time.Millisecond))
						})
					}
					time.Sleep(time.Second)
					end.stop(l, leave)
					waiters.Wait()
					require.NoError(t, held.Release(t.Context()))
					requireFree(t, s, key, setKeys[0])
				})
			}
		}
	}
}

// leaving is a context whose caller leaves when it begins to wait.
type leaving struct {
	context.Context //nolint:containedctx // it is one
	leave           func()
}

func (c leaving) Done() <-chan struct{} { c.leave(); return c.Context.Done() }

// A waiter that leaves at the moment at which it is served passes the key on. It looks at either first.
func TestWaiterThatLeavesPassesTheKeyOn(t *testing.T) {
	t.Parallel()
	l := fault.Locker(t, memstore.New())
	for range 100 {
		e := acquired(t, l, key)
		ctx, cancel := context.WithCancel(t.Context())
		left := leaving{ctx, sync.OnceFunc(func() {
			require.NoError(t, e.Release(t.Context()))
			cancel()
		})}
		require.ErrorIs(t, l.With(lock.WithWait(time.Minute)).Do(left, key, nil), context.Canceled)
		requireGrant(t, l)
	}
}

func TestWaitForAnotherProcess(t *testing.T) {
	for of, do := range contenders {
		bubbleCase(t, of, func(t *testing.T, s *fault.Store, open func(...lock.Option) *lock.Locker) {
			here, there := open(), open(lock.WithWait(time.Minute))
			e := acquired(t, here, key)
			time.AfterFunc(4*lease, func() { _ = e.Release(context.Background()) })
			began := time.Now()
			requireEach(t, nil, meet(5, func(int) error {
				return do(context.Background(), there, func(ctx context.Context) error { return ctx.Err() })
			}))
			require.Less(t, time.Since(began), 4*lease+time.Second)
			require.Less(t, s.Count(fault.Claim), 90, "one contender per process and key, four times a second")
		})
	}
}

// Waiters of Once get the receipt. If the first run fails, the waiters in its process fail
// too, and the waiters in other processes run.
func TestOnceWaiters(t *testing.T) {
	for name, want := range map[string]struct{ runs, failed int }{"settled": {1, 0}, "released": {2, 20}} {
		bubbleCase(t, name, func(t *testing.T, _ *fault.Store, open func(...lock.Option) *lock.Locker) {
			var runs atomic.Int64
			lockers := []*lock.Locker{open(lock.WithWait(time.Minute)), open(lock.WithWait(time.Minute))}
			failed := 0
			for _, err := range meet(40, func(i int) error {
				receipt, _, err := lockers[i%2].Once(context.Background(), key, print1, func(context.Context) ([]byte, error) {
					first := runs.Add(1) == 1
					time.Sleep(time.Second)
					if first && name == "released" {
						return nil, errMine
					}
					return []byte("answer"), nil
				})
				assert.Equal(t, err == nil, string(receipt) == "answer")
				return err
			}) {
				if err != nil {
					failed++ // with all that waited in the process of the first
				}
			}
			require.Equal(t, want, struct{ runs, failed int }{int(runs.Load()), failed})
		})
	}
}

var unserved = map[string]fault.Func{"no answer": fault.HangRequest, "reply lost": fault.HangReply, "refused by admission": denied}

// Callers that wait for a holder wait on while the store does not serve a poll, wherever
// the holder is, and each gets the key in the end.
func TestAPollThatIsNotServedEndsNoWait(t *testing.T) {
	for name, why := range unserved {
		for of, do := range contenders {
			for _, where := range []string{"another process", "this process"} {
				bubbleCase(t, name+", "+of+", held by "+where, func(t *testing.T, s *fault.Store, open func(...lock.Option) *lock.Locker) {
					l := open(lock.WithWait(20 * time.Second))
					holder := l
					if where == "another process" {
						holder = open()
					}
					e := acquired(t, holder, key)
					time.AfterFunc(time.Second, func() { s.Every(why, fault.Claim); _ = e.Release(context.Background()) })
					time.AfterFunc(4*time.Second, func() { s.Every(nil, fault.Claim) })
					requireEach(t, nil, meet(30, func(int) error { return do(context.Background(), l, nothing) }))
				})
			}
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
				all.Go(func() {
					wait, began := time.Duration(5+i)*time.Second, time.Now()
					err := l.With(lock.WithWait(wait)).Do(t.Context(), key, nil)
					assert.ErrorIs(t, err, lock.ErrUnavailable)
					assert.ErrorContains(t, err, "known before: lock: key is held")
					assert.InDelta(t, wait, time.Since(began), float64(budget))
				})
			}
			ctx := within(t, 4*time.Second)
			began := time.Now()
			err := l.With(lock.WithWait(time.Minute)).Do(ctx, key, nil)
			assert.ErrorIs(t, err, lock.ErrUnavailable)
			assert.ErrorIs(t, err, context.DeadlineExceeded)
			assert.Equal(t, 4*time.Second, time.Since(began))

			began = time.Now()
			assert.ErrorIs(t, l.Do(t.Context(), key, nil), lock.ErrUnavailable)
			assert.LessOrEqual(t, time.Since(began), 2*budget, "one that does not wait hears of the next poll")
			all.Wait()
			s.Every(nil, fault.Claim)
			free()
		})
	}
}

func TestWaitersOverASilentStoreAreBounded(t *testing.T) {
	bubble(t, func(t *testing.T, s *fault.Store, open func(...lock.Option) *lock.Locker) {
		free := heldElsewhere(t, open)
		l := open(lock.WithWait(20 * time.Second))
		ctx, cancel := context.WithCancel(t.Context())
		go func() { _ = l.Do(ctx, key, nil) }()
		time.Sleep(time.Second)
		s.Every(fault.HangRequest, fault.Claim)
		time.AfterFunc(3*time.Second, cancel)
		refused := 0
		for _, err := range meet(10*meeting, func(int) error { return l.Do(ctx, key, nil) }) {
			if !errors.Is(err, context.Canceled) {
				require.ErrorIs(t, err, lock.ErrUnavailable)
				refused++
			}
		}
		require.Equal(t, 9*meeting, refused)
		s.Every(nil, fault.Claim)
		free()
	})
}

// heldElsewhere makes another process hold key for the rest of the test.
func heldElsewhere(t *testing.T, open func(...lock.Option) *lock.Locker) (free func()) {
	t.Helper()
	e := acquired(t, open(), key)
	return func() { require.NoError(t, e.Release(context.Background())) }
}

// The queue behind a caller that waits for another process is as bounded as that
// behind a holder: its callers wait as long.
func TestWaitersForAnotherProcessAreBounded(t *testing.T) {
	bubble(t, func(t *testing.T, s *fault.Store, open func(...lock.Option) *lock.Locker) {
		free := heldElsewhere(t, open)
		l := open(lock.WithWait(10 * time.Second))
		s.Every(fault.Slow(answersIn), fault.Claim)
		ctx, cancel := context.WithCancel(t.Context())
		time.AfterFunc(2*time.Second, cancel)
		come := func() (refused int) {
			for _, err := range meet(2*meeting, func(int) error {
				began := time.Now()
				err := l.Do(ctx, key, nil)
				assert.True(t, errors.Is(err, context.Canceled) || errors.Is(err, lock.ErrHeld) && time.Since(began) <= 2*answersIn)
				return err
			}) {
				if !errors.Is(err, context.Canceled) {
					refused++
				}
			}
			return refused
		}
		later := make(chan int, 1)
		time.AfterFunc(time.Second, func() { later <- come() })
		require.Equal(t, meeting-1, come(), "one asks, and 64 wait for it")
		require.Equal(t, 2*meeting, <-later, "none waits behind them")
		free()
	})
}

// A caller that does not wait is answered as fast as without a caller that waits.
func TestOneThatWaitsDoesNotDelayTheOthers(t *testing.T) {
	for name, opts := range map[string][]lock.Option{"": nil, "short budget": {lock.WithBudget(50 * time.Millisecond)}} {
		bubbleCase(t, name, func(t *testing.T, s *fault.Store, open func(...lock.Option) *lock.Locker) {
			free := heldElsewhere(t, open)
			strict := open(opts...)
			l := strict.With(lock.WithWait(time.Minute))
			s.Every(fault.Slow(answersIn), fault.Claim)
			go func() { _ = l.Do(context.Background(), key, nothing) }()
			time.Sleep(5 * time.Second)
			for range 20 {
				for _, of := range []*lock.Locker{strict, strict.With(lock.WithWait(answersIn))} {
					time.Sleep(70 * time.Millisecond)
					began := time.Now()
					require.ErrorIs(t, of.Do(t.Context(), key, nil), lock.ErrHeld)
					require.LessOrEqual(t, time.Since(began), 3*answersIn)
				}
			}
			free()
		})
	}
}

// A caller with a longer budget does not share the failure of a caller with a
// short budget.
func TestAShortBudgetEndsNoLongerOne(t *testing.T) {
	solo(t, func(t *testing.T, s *fault.Store, l *lock.Locker) {
		hasty := l.With(lock.WithBudget(budget / 100))
		s.Every(func(ctx context.Context, apply func() error) error {
			if fault.Sleep(ctx, budget/10); ctx.Err() != nil {
				return ctx.Err()
			}
			return apply()
		}, fault.Claim)
		hastyErr := make(chan error, 1)
		go func() { hastyErr <- hasty.Do(context.Background(), key, nil) }()
		synctest.Wait()
		e := acquired(t, l, key)
		require.ErrorIs(t, <-hastyErr, lock.ErrUnavailable)
		require.NoError(t, e.Release(t.Context()))
	})
}

// The data of a refusal belong to its caller, which may write to them.
func TestARefusalThatIsSharedIsEachCallersOwn(t *testing.T) {
	t.Parallel()
	s := fault.New()
	l := lock.New(s, lock.WithLogger(quiet))
	_, _, err := l.Once(t.Context(), key, print1, func(context.Context) ([]byte, error) { return []byte("answer"), nil })
	require.NoError(t, err)
	s.Every(fault.Slow(answersIn), fault.Claim)
	requireEach(t, lock.ErrMismatch, meet(meeting, func(int) error {
		_, _, err := l.Once(context.Background(), key, print2, nil)
		if refused, ok := err.(*lock.RefusedError); ok { //nolint:errorlint // it is to be one
			copy(refused.Entry.Fingerprint, print2)
			copy(refused.Entry.Receipt, "another")
		}
		return err
	}))
	require.NoError(t, l.Close(t.Context()))
}
