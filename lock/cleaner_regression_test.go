package lock_test

import (
	"context"
	"fmt"
	"io"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/httplatch/httplatch/lock"
	"github.com/httplatch/httplatch/lock/internal/fault"
)

// no-orphan: the removal of a claim of Once was given up when its lease could be over,
// though its entry says for as long as a record is kept that the outcome is not known.
// So an outage of a few minutes left keys that other processes refused for a day.
func TestRegressionOrphanOfOnceThatOutlastsAnOutage(t *testing.T) {
	bubbleOver(t, direct, func(t *testing.T, s *fault.Store, open func(...lock.Option) *lock.Locker) {
		var f effect
		l, other := open(lock.WithKeep(keep)), open(lock.WithKeep(keep))
		s.Every(fault.HangReply, fault.Claim)
		s.Every(fault.HangRequest, fault.Release)
		_, _, err := l.Once(t.Context(), key, print1, f.run("never"))
		require.ErrorIs(t, err, lock.ErrUnknown)
		s.Every(fault.HangRequest, fault.Claim)
		time.Sleep(10 * time.Minute)
		_, err = l.Acquire(t.Context(), "another")
		require.ErrorIs(t, err, lock.ErrUnknown)
		s.Every(nil, fault.Claim, fault.Release)
		time.Sleep(time.Minute)
		_, replayed, err := other.Once(t.Context(), key, print1, f.run("answer"))
		require.NoError(t, err)
		require.False(t, replayed)
		s.Free(t, record)
	})
}

// no-collapse: clean-up that only waited for what was still in flight, and sent nothing,
// took a token of the retry budget each time.
func TestRegressionWaitingForWhatIsInFlightCostsNoToken(t *testing.T) {
	bubbleOver(t, apart, func(t *testing.T, s *fault.Store, open func(...lock.Option) *lock.Locker) {
		l := open()
		letGo := make(chan struct{})
		s.Every(func(context.Context, func() error) error { <-letGo; return io.EOF }, fault.Claim)
		var all sync.WaitGroup
		for i := range 300 {
			all.Go(func() { _, _ = l.Acquire(t.Context(), fmt.Sprint(key, i)) })
		}
		all.Wait()
		time.Sleep(time.Minute) // all were removed once
		s.Every(fault.Slow(90*time.Millisecond), fault.Claim)
		stop := make(chan struct{})
		for i := range 4 {
			all.Go(func() { // callers, all the time
				for {
					select {
					case <-stop:
						return
					default:
						_ = l.Do(t.Context(), fmt.Sprint("other", i), func(context.Context) error { return nil })
					}
				}
			})
		}
		time.Sleep(time.Second)
		tokens := l.Stats().Retries
		time.Sleep(time.Minute)
		require.GreaterOrEqual(t, l.Stats().Retries, tokens)
		close(stop)
		all.Wait()
		close(letGo)
		synctest.Wait()
	})
}

// A removal that was given up in the moment in which it was added, since all before it
// were running, ended the process when its claim landed.
func TestRegressionTheNewestRemovalIsGivenUp(t *testing.T) {
	bubbleOver(t, apart, func(t *testing.T, s *fault.Store, open func(...lock.Option) *lock.Locker) {
		l := open()
		lock.LimitOrphans(l, 8)
		s.Every(fault.HangRequest, fault.Claim)
		s.Every(fault.Stuck(time.Minute), fault.Release)
		var all sync.WaitGroup
		for i := range 8 {
			all.Go(func() { _, _ = l.Acquire(t.Context(), fmt.Sprint(key, i)) })
		}
		all.Wait()
		time.Sleep(1100 * time.Millisecond)
		s.Every(fault.Stuck(5*time.Second), fault.Claim)
		for i := range 3 {
			_, err := l.Acquire(t.Context(), fmt.Sprint("more", i))
			require.Error(t, err)
		}
		time.Sleep(10 * time.Second)
		s.Every(nil, fault.Claim, fault.Release)
		time.Sleep(time.Hour)
		require.Zero(t, l.Stats().Backlog)
	})
}

// once, at the next process: a settle without an answer waited in line behind all that
// there was to clean up, after an outage for as long as the retry budget took to pay for
// tens of thousands of removals.
func TestRegressionEndsComeBeforeCleanUp(t *testing.T) {
	bubbleOver(t, direct, func(t *testing.T, s *fault.Store, open func(...lock.Option) *lock.Locker) {
		l, other := open(lock.WithKeep(keep), lock.WithMaxHold(time.Hour)), open(lock.WithKeep(keep))
		s.Every(fault.HangRequest, fault.Claim, fault.Release)
		var all sync.WaitGroup
		for i := range 5000 {
			all.Go(func() { _, _ = l.Acquire(t.Context(), fmt.Sprint(key, i)) })
		}
		all.Wait()
		time.Sleep(time.Second)
		s.Every(nil, fault.Claim)
		s.Every(fault.HangRequest, fault.Settle)
		_, _, err := l.Once(t.Context(), key, print1, func(context.Context) ([]byte, error) { return []byte("answer"), nil })
		require.NoError(t, err)
		s.Every(nil, fault.Settle, fault.Release)
		s.Every(fault.Slow(90*time.Millisecond), fault.Claim)
		stop := make(chan struct{})
		for i := range 4 {
			all.Go(func() { // callers, all the time
				for {
					select {
					case <-stop:
						return
					default:
						_ = l.Do(t.Context(), fmt.Sprint("other", i), func(context.Context) error { return nil })
					}
				}
			})
		}
		began := time.Now()
		for s.State(t, record).State != lock.Settled && time.Since(began) < 10*time.Minute {
			time.Sleep(100 * time.Millisecond)
		}
		require.Less(t, time.Since(began), 5*time.Second)
		close(stop)
		all.Wait()
		_, replayed, err := other.Once(t.Context(), key, print1, nil)
		require.NoError(t, err)
		require.True(t, replayed)
		s.Free(t, record)
	})
}
