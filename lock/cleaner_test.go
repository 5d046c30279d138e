package lock_test

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/httplatch/httplatch/lock"
)

// How many compare-and-deletes one claim costs whose answers are lost.
func TestRemovalsOfOneOrphan(t *testing.T) {
	for _, tt := range []struct {
		name     string
		faults   []fault
		lag      time.Duration
		removals int
	}{
		{"applied, and both replies lost at once", []fault{loseReply, hangReply}, 15 * time.Second, 6},
		{"applied, and its only reply lost", []fault{hangReply, refuse, refuse, refuse, refuse, refuse, refuse, refuse}, 15 * time.Second, 1},
		{"not applied", []fault{hangRequest, refuse, refuse, refuse, refuse, refuse, refuse, refuse}, 15 * time.Second, 6},
		{"not applied, and the network is slow", []fault{hangRequest, hangRequest}, 2 * time.Minute, 9},
		{"nothing can land late", []fault{hangRequest, hangRequest}, 0, 2},
		{"refused", []fault{refuse, refuse, refuse, refuse, refuse, refuse, refuse, refuse}, 15 * time.Second, 0},
	} {
		t.Run(tt.name, func(t *testing.T) {
			bubbleOver(t, direct, func(t *testing.T, s *scripted, open func(...lock.Option) *lock.Locker) {
				s.lag = tt.lag
				l := open(lock.WithLease(time.Hour), lock.WithMaxHold(time.Hour))
				s.next(claim, tt.faults...)
				_, err := l.Acquire(t.Context(), key)
				require.ErrorIs(t, err, lock.ErrUnavailable)
				time.Sleep(time.Hour)
				require.Equal(t, tt.removals, s.count(release))
				require.Equal(t, lock.Free, s.state(t, key).State)
				require.Zero(t, l.Stats().Backlog)
			})
		})
	}
}

// While the store answers nothing, clean-up gets what time alone gives: ten sends a
// second, after what was saved.
func TestCleanUpIsPaidFromTheRetryBudget(t *testing.T) {
	bubbleOver(t, direct, func(t *testing.T, s *scripted, open func(...lock.Option) *lock.Locker) {
		const callers = 500
		l := open()
		s.every(hangRequest, claim, release)
		var all sync.WaitGroup
		for i := range callers {
			all.Go(func() { _, _ = l.Acquire(t.Context(), fmt.Sprint(key, i)) })
		}
		all.Wait()
		require.Equal(t, callers, l.Stats().Backlog)
		time.Sleep(10 * time.Second)
		before := s.count(release)
		time.Sleep(10 * time.Second)
		require.InDelta(t, 100, s.count(release)-before, 20)

		s.every(nil, claim, release)
		require.NoError(t, l.Do(t.Context(), key, func(context.Context) error { return nil }))
		time.Sleep(10 * time.Second)
		require.Zero(t, l.Stats().Backlog, "when the store answers, and no caller wants anything of it, all is done at once")
	})
}

// no-collapse: clean-up during a Close takes no tokens, and gives none.
func TestCleanUpDuringCloseMakesNoTokens(t *testing.T) {
	bubbleOver(t, direct, func(t *testing.T, s *scripted, open func(...lock.Option) *lock.Locker) {
		const lost = 200
		l := open()
		working, err := l.Acquire(t.Context(), key)
		require.NoError(t, err)
		s.every(hangRequest, claim, release)
		var all sync.WaitGroup
		for i := range lost {
			all.Go(func() { _, _ = l.Acquire(t.Context(), fmt.Sprint(key, i)) })
		}
		all.Wait()
		s.every(slow(time.Millisecond), release)
		before, sent, began := l.Stats().Retries, s.count(release), time.Now()
		all.Go(func() { _ = l.Close(context.Background()) }) // it waits for the work
		time.Sleep(time.Second)
		removals := s.count(release) - sent
		require.GreaterOrEqual(t, removals, lost)
		require.LessOrEqual(t, removals, 3*lost, "what was answered is not in a hurry")
		require.LessOrEqual(t, l.Stats().Retries, before+removals/5+int(time.Since(began).Seconds()*10)+1, "answers and time")
		require.NoError(t, working.Release(t.Context()))
		all.Wait()
	})
}

// However much there is to clean up, no claim is refused for it. The oldest is given
// up, counted and logged. What it has left is gone a lease after its landing, and this
// process is not refused by it even until then.
func TestOldestCleanUpIsGivenUp(t *testing.T) {
	bubbleOver(t, direct, func(t *testing.T, s *scripted, open func(...lock.Option) *lock.Locker) {
		const most = 1000
		var log strings.Builder
		var mu sync.Mutex
		l := open(lock.WithLogger(slog.New(slog.NewTextHandler(&locked{&mu, &log}, nil))), lock.WithLease(time.Minute), lock.WithMaxHold(time.Minute))
		lock.LimitOrphans(l, most)
		other := open()
		s.every(hangReply, claim)
		s.every(hangRequest, release)
		_, err := l.Acquire(t.Context(), "the oldest")
		require.ErrorIs(t, err, lock.ErrUnknown)
		landed := time.Now()
		s.every(hangRequest, claim)
		var all sync.WaitGroup
		for i := range most {
			all.Go(func() { _, _ = l.Acquire(t.Context(), fmt.Sprint(key, i)) })
		}
		all.Wait()
		synctest.Wait()
		require.GreaterOrEqual(t, l.Stats().Dropped, int64(1))
		require.LessOrEqual(t, l.Stats().Backlog, most)
		mu.Lock()
		require.Equal(t, 1, strings.Count(log.String(), "given up for a newer one"))
		mu.Unlock()

		s.every(nil, claim, release)
		granted(t, l)
		_, err = other.Acquire(t.Context(), "the oldest")
		require.ErrorIs(t, err, lock.ErrHeld)
		require.NoError(t, l.Do(t.Context(), "the oldest", func(context.Context) error { return nil }), "no-self-conflict")
		time.Sleep(time.Until(landed.Add(time.Minute)))
		require.NoError(t, other.Do(t.Context(), "the oldest", func(context.Context) error { return nil }))
	})
}

// locked is a writer for many goroutines.
type locked struct {
	mu *sync.Mutex
	to *strings.Builder
}

func (w *locked) Write(p []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.to.Write(p)
}

// A takeover whose answers were lost is gone on with under the same token: this
// process is not refused by it, and its number is that of the run, since there was
// none in between.
func TestALostTakeoverIsGoneOnWith(t *testing.T) {
	for name, tt := range map[string]struct {
		lost  fault
		later time.Duration
	}{
		"applied, at once":               {hangReply, 0},
		"applied, while it is held":      {loseReply, lease / 2},
		"applied, when it has lapsed":    {hangReply, 2 * lease},
		"not applied":                    {hangRequest, 0},
		"not applied, and a while later": {loseRequest, 2 * lease},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, s *scripted, open func(...lock.Option) *lock.Locker) {
				var f effect
				opts := []lock.Option{lock.WithKeep(time.Hour), lock.WithRerunAbandoned()}
				crash(t, s, func(context.Context) {}, opts...)
				s.every(nil, settle, release, renew)
				time.Sleep(lease)
				l, other := open(opts...), open(opts...)
				s.next(claim, nil).every(tt.lost, claim) // the first sees what is abandoned
				_, _, err := l.Once(t.Context(), key, print1, f.run("never"))
				require.ErrorIs(t, err, lock.ErrUnknown)
				s.every(nil, claim)
				time.Sleep(tt.later)

				_, _, err = l.Once(t.Context(), key, []byte("another"), f.run("never"))
				require.ErrorIs(t, err, lock.ErrMismatch)
				receipt, replayed, err := l.Once(t.Context(), key, print1, func(ctx context.Context) ([]byte, error) {
					require.Equal(t, 2, lock.Attempt(ctx))
					_, _, err := other.Once(t.Context(), key, print1, f.run("never"))
					require.ErrorIs(t, err, lock.ErrHeld)
					time.Sleep(2 * lease) // it is renewed like any other
					return []byte("answer"), nil
				})
				require.NoError(t, err)
				require.False(t, replayed)
				require.Equal(t, "answer", string(receipt))
				require.Equal(t, 2, s.state(t, record).Attempt)
				require.Zero(t, f.runs.Load())
				s.forget(t, record)
			})
		})
	}
}

// The answer to the renewal by which it is gone on with can be lost as well, and
// another process can have taken over by then.
func TestALostTakeoverThatIsTakenOver(t *testing.T) {
	bubble(t, func(t *testing.T, s *scripted, open func(...lock.Option) *lock.Locker) {
		var f effect
		opts := []lock.Option{lock.WithKeep(time.Hour), lock.WithRerunAbandoned()}
		crash(t, s, func(context.Context) {}, opts...)
		s.every(nil, settle, release, renew)
		time.Sleep(lease)
		l, other := open(opts...), open(opts...)
		s.next(claim, nil).every(hangReply, claim)
		_, _, err := l.Once(t.Context(), key, print1, f.run("never"))
		require.ErrorIs(t, err, lock.ErrUnknown)
		s.every(nil, claim)
		s.every(hangReply, renew)
		_, _, err = l.Once(t.Context(), key, print1, f.run("never"))
		require.ErrorIs(t, err, lock.ErrUnknown)
		s.every(nil, renew)
		time.Sleep(lease)
		_, _, err = other.Once(t.Context(), key, print1, func(ctx context.Context) ([]byte, error) {
			require.Equal(t, 3, lock.Attempt(ctx))
			_, _, err := l.Once(t.Context(), key, print1, f.run("never"))
			require.ErrorIs(t, err, lock.ErrHeld)
			return []byte("theirs"), nil
		})
		require.NoError(t, err)
		receipt, replayed, err := l.Once(t.Context(), key, print1, f.run("never"))
		require.NoError(t, err)
		require.True(t, replayed)
		require.Equal(t, "theirs", string(receipt))
		require.Zero(t, f.runs.Load())
		s.forget(t, record)
	})
}

// once, at the next process: removals that hang take no room from a settle that lacks
// its answer.
func TestEndsDoNotWaitForRemovalsThatHang(t *testing.T) {
	bubbleOver(t, direct, func(t *testing.T, s *scripted, open func(...lock.Option) *lock.Locker) {
		l := open()
		s.every(hangRequest, claim, release)
		var all sync.WaitGroup
		for i := range 20 {
			all.Go(func() { _, _ = l.Acquire(t.Context(), fmt.Sprint(key, i)) })
		}
		all.Wait()
		time.Sleep(budget / 2) // as many removals as may are under way, and hang for another half
		s.every(nil, claim)
		var back atomic.Bool
		s.every(func(ctx context.Context, apply func() error) error {
			if back.Load() {
				return apply()
			}
			return refuse(ctx, apply)
		}, settle)
		_, _, err := l.Once(t.Context(), key, print1, func(context.Context) ([]byte, error) { return []byte("answer"), nil })
		require.NoError(t, err)
		back.Store(true)
		time.Sleep(budget / 10)
		require.Equal(t, lock.Settled, s.state(t, record).State)
		s.forget(t, record)
	})
}
