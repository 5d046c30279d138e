package lock_test

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/httplatch/httplatch/internal/testkit/must"
	"github.com/httplatch/httplatch/internal/testkit/testmain"
	"github.com/httplatch/httplatch/lock"
	"github.com/httplatch/httplatch/lock/internal/testkit/fault"
)

// no-collapse: clean-up that only waited for a send in flight, and sent nothing, took a token of
// the retry budget each time.
func TestWaitingForWhatIsInFlightCostsNoToken(t *testing.T) {
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
		stop := callersAllTheTime(t, l)
		time.Sleep(time.Second)
		tokens := l.Stats().Retries
		time.Sleep(time.Minute)
		require.GreaterOrEqual(t, l.Stats().Retries, tokens)
		stop()
		close(letGo)
		synctest.Wait()
	})
}

// callersAllTheTime starts four callers that use other keys until stop is called.
func callersAllTheTime(t *testing.T, l *lock.Locker) (stop func()) {
	t.Helper()
	var all sync.WaitGroup
	ctx, end := context.WithCancel(t.Context())
	for i := range 4 {
		all.Go(func() {
			for ctx.Err() == nil {
				_ = l.Do(t.Context(), fmt.Sprint("other", i), func(context.Context) error { return nil })
			}
		})
	}
	return func() {
		end()
		all.Wait()
	}
}

// once, at the next process: a settle without an answer waited in line behind all that
// there was to clean up, after an outage for as long as the retry budget took to pay for
// tens of thousands of removals.
func TestEndsComeBeforeCleanUp(t *testing.T) {
	testmain.SkipIn(t, testmain.Quick, "makes thousands of claims")
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
		stop := callersAllTheTime(t, l)
		began := time.Now()
		for s.State(t, record).State != lock.Settled && time.Since(began) < 10*time.Minute {
			time.Sleep(100 * time.Millisecond)
		}
		require.Less(t, time.Since(began), 5*time.Second)
		stop()
		must.Replay(t)(other.Once(t.Context(), key, print1, nil))
		s.Free(t, record)
	})
}

// While the store answers nothing, clean-up has only the tokens that time adds, ten a second, after
// the saved ones.
func TestCleanUpIsPaidFromTheRetryBudget(t *testing.T) {
	bubbleOver(t, direct, func(t *testing.T, s *fault.Store, open func(...lock.Option) *lock.Locker) {
		const callers = 500
		l := open()
		s.Every(fault.HangRequest, fault.Claim, fault.Release)
		var all sync.WaitGroup
		for i := range callers {
			all.Go(func() { _, _ = l.Acquire(t.Context(), fmt.Sprint(key, i)) })
		}
		all.Wait()
		require.Equal(t, callers, l.Stats().Backlog)
		time.Sleep(10 * time.Second)
		before := s.Count(fault.Release)
		time.Sleep(10 * time.Second)
		require.InDelta(t, 100, s.Count(fault.Release)-before, 20)

		s.Every(nil, fault.Claim, fault.Release)
		require.NoError(t, l.Do(t.Context(), key, func(context.Context) error { return nil }))
		time.Sleep(10 * time.Second)
		require.Zero(t, l.Stats().Backlog, "when the store answers, and no caller wants anything of it, all is done at once")
	})
}

// no-collapse: clean-up during a Close takes no tokens, and gives none.
func TestCleanUpDuringCloseMakesNoTokens(t *testing.T) {
	bubbleOver(t, direct, func(t *testing.T, s *fault.Store, open func(...lock.Option) *lock.Locker) {
		const lost = 200
		l := open()
		working := acquired(t, l, key)
		s.Every(fault.HangRequest, fault.Claim, fault.Release)
		var all sync.WaitGroup
		for i := range lost {
			all.Go(func() { _, _ = l.Acquire(t.Context(), fmt.Sprint(key, i)) })
		}
		all.Wait()
		s.Every(fault.Slow(time.Millisecond), fault.Release)
		before, sent, began := l.Stats().Retries, s.Count(fault.Release), time.Now()
		all.Go(func() { _ = l.Close(context.Background()) }) // it waits for the work
		time.Sleep(time.Second)
		removals := s.Count(fault.Release) - sent
		require.GreaterOrEqual(t, removals, lost)
		require.LessOrEqual(t, removals, 3*lost, "what was answered is not in a hurry")
		require.LessOrEqual(t, l.Stats().Retries, before+removals/5+int(time.Since(began).Seconds()*10)+1, "answers and time")
		require.NoError(t, working.Release(t.Context()))
		all.Wait()
	})
}

// No claim is refused because of many clean-ups. The oldest clean-up is given up, counted and
// logged. An entry of it is gone a lease after its landing, and does not refuse this process even
// before.
func TestOldestCleanUpIsGivenUp(t *testing.T) {
	testmain.SkipIn(t, testmain.Quick, "keeps 65,536 clean-ups")
	bubbleOver(t, direct, func(t *testing.T, s *fault.Store, open func(...lock.Option) *lock.Locker) {
		const most = 1 << 16
		var log strings.Builder
		var mu sync.Mutex
		l := open(lock.WithLogger(slog.New(slog.NewTextHandler(&locked{&mu, &log}, nil))), lock.WithLease(time.Hour), lock.WithMaxHold(time.Hour))
		other := open()
		s.Every(fault.LoseReply, fault.Claim)
		s.Every(fault.LoseRequest, fault.Release)
		_, err := l.Acquire(t.Context(), "the oldest")
		require.ErrorIs(t, err, lock.ErrUnknown)
		landed := time.Now()
		s.Every(fault.LoseRequest, fault.Claim)
		for i := range most {
			_, _ = l.Acquire(t.Context(), lock.Key(key, strconv.Itoa(i)))
		}
		synctest.Wait()
		require.GreaterOrEqual(t, l.Stats().Dropped, int64(1))
		require.LessOrEqual(t, l.Stats().Backlog, most)
		mu.Lock()
		require.Equal(t, 1, strings.Count(log.String(), "given up for a newer one"), "it is logged once a minute")
		mu.Unlock()

		s.Every(nil)
		granted(t, l)
		_, err = other.Acquire(t.Context(), "the oldest")
		require.ErrorIs(t, err, lock.ErrHeld)
		require.NoError(t, l.Do(t.Context(), "the oldest", func(context.Context) error { return nil }), "no-self-conflict")
		time.Sleep(time.Until(landed.Add(time.Hour)))
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

// once, at the next process: removals that hang take no room from a settle that lacks
// its answer.
func TestEndsDoNotWaitForRemovalsThatHang(t *testing.T) {
	bubbleOver(t, direct, func(t *testing.T, s *fault.Store, open func(...lock.Option) *lock.Locker) {
		l := open()
		s.Every(fault.HangRequest, fault.Claim, fault.Release)
		var all sync.WaitGroup
		for i := range 20 {
			all.Go(func() { _, _ = l.Acquire(t.Context(), fmt.Sprint(key, i)) })
		}
		all.Wait()
		time.Sleep(budget / 2) // as many removals as may are under way, and hang for another half
		s.Every(nil, fault.Claim)
		var back atomic.Bool
		s.Every(func(ctx context.Context, apply func() error) error {
			if back.Load() {
				return apply()
			}
			return fault.Refuse(ctx, apply)
		}, fault.Settle)
		_, _, err := l.Once(t.Context(), key, print1, func(context.Context) ([]byte, error) { return []byte("answer"), nil })
		require.NoError(t, err)
		back.Store(true)
		time.Sleep(budget / 10)
		require.Equal(t, lock.Settled, s.State(t, record).State)
		s.Free(t, record)
	})
}

// no-lockout: an outage leaves as many releases without an answer as there are callers.
// When it is over, the callers that come back are served in the first round trips: each removes the entry
// that is in its way, and does not wait for the clean-up, which makes eight calls at a time.
func TestCallersDoNotWaitForUnansweredReleases(t *testing.T) {
	bubbleOver(t, direct, func(t *testing.T, s *fault.Store, open func(...lock.Option) *lock.Locker) {
		const callers, trip = 400, 10 * time.Millisecond
		l := open()
		for range 5000 { // saves tokens
			granted(t, l)
		}
		each := func(do func(i int)) {
			var all sync.WaitGroup
			for i := range callers {
				all.Go(func() { do(i) })
			}
			all.Wait()
		}
		for range 2 { // an earlier answer of the store does not end a later silence
			var leases [callers]*lock.Lease
			each(func(i int) {
				var err error
				leases[i], err = l.Acquire(t.Context(), fmt.Sprint(key, i))
				require.NoError(t, err)
			})
			back := make(chan struct{})
			s.Every(func(ctx context.Context, apply func() error) error {
				select {
				case <-back:
					fault.Sleep(ctx, trip)
					return apply()
				case <-ctx.Done():
					return ctx.Err()
				}
			}, fault.Release)
			each(func(i int) { require.ErrorIs(t, leases[i].Release(t.Context()), lock.ErrUnavailable) })

			var began time.Time
			time.AfterFunc(budget/2, func() {
				began = time.Now()
				close(back)
			})
			each(func(i int) {
				e := acquired(t, l, fmt.Sprint(key, i))
				require.Less(t, time.Since(began), 10*trip)
				require.NoError(t, e.Release(t.Context()))
			})
			s.Every(nil, fault.Release)
		}
	})
}
