package lock_test

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/httplatch/httplatch/lock"
	"github.com/httplatch/httplatch/lock/internal/testkit/fault"
)

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
		var wg sync.WaitGroup
		for _, together := range []bool{true, false} { // with the first claim, and while its caller waits
			var mu sync.Mutex
			refused := 0
			for range 2 * meeting {
				wg.Go(func() {
					began := time.Now()
					_, err := l.Acquire(ctx, key)
					if ctx.Err() != nil {
						return
					}
					mu.Lock()
					defer mu.Unlock()
					refused++
					assert.ErrorIs(t, err, lock.ErrHeld)
					assert.LessOrEqual(t, time.Since(began), 2*answersIn)
				})
			}
			time.Sleep(time.Second)
			mu.Lock()
			want := 2 * meeting
			if together {
				want = meeting - 1 // one asks, and 64 wait for it
			}
			require.Equal(t, want, refused)
			mu.Unlock()
		}
		cancel()
		wg.Wait()
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
			go func() {
				_ = l.Do(context.Background(), key, func(context.Context) error { return nil })
			}()
			time.Sleep(5 * time.Second)
			for range 20 {
				for _, of := range []*lock.Locker{strict, strict.With(lock.WithWait(answersIn))} {
					time.Sleep(70 * time.Millisecond)
					began := time.Now()
					_, err := of.Acquire(t.Context(), key)
					require.ErrorIs(t, err, lock.ErrHeld)
					require.LessOrEqual(t, time.Since(began), 3*answersIn)
				}
			}
			free()
		})
	}
}

// A caller that does not wait is refused by the holder of the key, while an earlier caller still
// waits for the holder.
func TestTheSecondThatWaitsForAnotherProcessIsRefused(t *testing.T) {
	bubble(t, func(t *testing.T, _ *fault.Store, open func(...lock.Option) *lock.Locker) {
		free := heldElsewhere(t, open)
		l := open(lock.WithWait(2 * time.Second))
		for _, err := range meet(3, func(i int) error {
			_, err := l.With(lock.WithWait(time.Duration(4-i)*time.Second)).Acquire(context.Background(), key)
			return err
		}) {
			require.ErrorIs(t, err, lock.ErrHeld)
		}
		free()
	})
}

// A wait for holders that is shorter than the pending claim it meets is over when the claim is
// granted.
func TestAWaitThatIsOverDoesNotGoOnForAHolder(t *testing.T) {
	bubble(t, func(t *testing.T, s *fault.Store, open func(...lock.Option) *lock.Locker) {
		l := open(lock.WithWait(answersIn / 2))
		s.Every(fault.Slow(answersIn), fault.Claim)
		go func() {
			_ = l.Do(context.Background(), key, func(context.Context) error { time.Sleep(time.Second); return nil })
		}()
		synctest.Wait()
		began := time.Now()
		_, err := l.Acquire(t.Context(), key)
		require.ErrorIs(t, err, lock.ErrHeld)
		require.Equal(t, answersIn, time.Since(began))
		time.Sleep(2 * time.Second)
	})
}

// A caller with a longer budget does not share the failure of a caller with a
// short budget.
func TestAShortBudgetEndsNoLongerOne(t *testing.T) {
	bubble(t, func(t *testing.T, s *fault.Store, open func(...lock.Option) *lock.Locker) {
		l := open()
		hasty := l.With(lock.WithBudget(budget / 100))
		s.Every(func(ctx context.Context, apply func() error) error {
			if fault.Sleep(ctx, budget/10); ctx.Err() != nil {
				return ctx.Err()
			}
			return apply()
		}, fault.Claim)
		hastyErr := make(chan error, 1)
		go func() { _, err := hasty.Acquire(context.Background(), key); hastyErr <- err }()
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
	for _, err := range meet(meeting, func(int) error {
		_, _, err := l.Once(context.Background(), key, print2, nil)
		if refused, ok := err.(*lock.RefusedError); ok { //nolint:errorlint // it is to be one
			copy(refused.Entry.Fingerprint, print2)
			copy(refused.Entry.Receipt, "another")
		}
		return err
	}) {
		require.ErrorIs(t, err, lock.ErrMismatch)
	}
	require.NoError(t, l.Close(t.Context()))
}
