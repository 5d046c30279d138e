package lock_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/httplatch/httplatch/lock"
	"github.com/httplatch/httplatch/lock/internal/fault"
)

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
