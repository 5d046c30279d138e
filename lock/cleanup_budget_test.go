package lock_test

import (
	"context"
	"fmt"
	"io"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/httplatch/httplatch/internal/testkit/journal"
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
		claimMany(t, l, 300)
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

// claimMany claims n keys at the same time, and returns when the claims have ended.
func claimMany(t *testing.T, l *lock.Locker, n int) {
	t.Helper()
	meet(n, func(i int) error { _, err := l.Acquire(t.Context(), fmt.Sprint(key, i)); return err })
}

// callersAllTheTime starts four callers that use other keys until stop is called.
func callersAllTheTime(t *testing.T, l *lock.Locker) (stop func()) {
	t.Helper()
	var all sync.WaitGroup
	ctx, end := context.WithCancel(t.Context())
	for i := range 4 {
		all.Go(func() {
			for ctx.Err() == nil {
				_ = l.Do(t.Context(), fmt.Sprint("other", i), nothing)
			}
		})
	}
	return func() {
		end()
		all.Wait()
	}
}

// once, at the next process: a settle without an answer waited behind all clean-up, after an outage for as long as
// the retry budget took to pay for tens of thousands of removals.
func TestEndsComeBeforeCleanUp(t *testing.T) {
	testmain.SkipIn(t, testmain.Quick, "makes thousands of claims")
	bubbleOver(t, direct, func(t *testing.T, s *fault.Store, open func(...lock.Option) *lock.Locker) {
		l, other := open(lock.WithKeep(keep), lock.WithMaxHold(time.Hour)), open(lock.WithKeep(keep))
		s.Every(fault.HangRequest, fault.Claim, fault.Release)
		claimMany(t, l, 5000)
		time.Sleep(time.Second)
		s.Every(nil, fault.Claim)
		s.Every(fault.HangRequest, fault.Settle)
		must.Run(t)(l.Once(t.Context(), key, print1, func(context.Context) ([]byte, error) { return []byte("answer"), nil }))
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
		claimMany(t, l, callers)
		require.Equal(t, callers, l.Stats().Backlog)
		time.Sleep(10 * time.Second)
		before := s.Count(fault.Release)
		time.Sleep(10 * time.Second)
		require.InDelta(t, 100, s.Count(fault.Release)-before, 20)

		s.Every(nil, fault.Claim, fault.Release)
		require.NoError(t, l.Do(t.Context(), key, nothing))
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
		claimMany(t, l, lost)
		s.Every(fault.Slow(time.Millisecond), fault.Release)
		before, sent, began := l.Stats().Retries, s.Count(fault.Release), time.Now()
		closed := make(chan error, 1)
		go func() { closed <- l.Close(context.Background()) }() // it waits for the work
		time.Sleep(time.Second)
		removals := s.Count(fault.Release) - sent
		require.GreaterOrEqual(t, removals, lost)
		require.LessOrEqual(t, removals, 3*lost, "what was answered is not in a hurry")
		require.LessOrEqual(t, l.Stats().Retries, before+removals/5+int(time.Since(began).Seconds()*10)+1, "answers and time")
		require.NoError(t, working.Release(t.Context()))
		require.NoError(t, <-closed)
	})
}

// No claim is refused because of many clean-ups: the oldest is given up, counted and logged. An entry of it is gone a
// lease after its landing, and never refuses this process.
func TestOldestCleanUpIsGivenUp(t *testing.T) {
	testmain.SkipIn(t, testmain.Quick, "keeps 65,536 clean-ups")
	bubbleOver(t, direct, func(t *testing.T, s *fault.Store, open func(...lock.Option) *lock.Locker) {
		const most = 1 << 16
		var book journal.Journal
		l := open(lock.WithLogger(book.Logger()), lock.WithLease(time.Hour), lock.WithMaxHold(time.Hour))
		other := open()
		s.Every(fault.LoseReply, fault.Claim)
		s.Every(fault.LoseRequest, fault.Release)
		require.ErrorIs(t, l.Do(t.Context(), "the oldest", nil), lock.ErrUnknown)
		landed := time.Now()
		s.Every(fault.LoseRequest, fault.Claim)
		for i := range most {
			_, _ = l.Acquire(t.Context(), lock.Key(key, strconv.Itoa(i)))
		}
		synctest.Wait()
		require.GreaterOrEqual(t, l.Stats().Dropped, int64(1))
		require.LessOrEqual(t, l.Stats().Backlog, most)
		require.Equal(t, 1, strings.Count(strings.Join(book.Lines(), ""), "given up for a newer one"), "it is logged once a minute")

		s.Every(nil)
		requireGrant(t, l)
		require.ErrorIs(t, other.Do(t.Context(), "the oldest", nil), lock.ErrHeld)
		require.NoError(t, l.Do(t.Context(), "the oldest", nothing), "no-self-conflict")
		time.Sleep(time.Until(landed.Add(time.Hour)))
		require.NoError(t, other.Do(t.Context(), "the oldest", nothing))
	})
}

// once, at the next process: removals that hang take no room from a settle that lacks
// its answer.
func TestEndsDoNotWaitForRemovalsThatHang(t *testing.T) {
	bubbleOver(t, direct, func(t *testing.T, s *fault.Store, open func(...lock.Option) *lock.Locker) {
		l := open()
		s.Every(fault.HangRequest, fault.Claim, fault.Release)
		claimMany(t, l, 20)
		time.Sleep(budget / 2) // as many removals as may are under way, and hang for another half
		s.Every(nil, fault.Claim)
		var back atomic.Bool
		s.Every(func(ctx context.Context, apply func() error) error {
			if back.Load() {
				return apply()
			}
			return fault.Refuse(ctx, apply)
		}, fault.Settle)
		must.Run(t)(l.Once(t.Context(), key, print1, func(context.Context) ([]byte, error) { return []byte("answer"), nil }))
		back.Store(true)
		time.Sleep(budget / 10)
		require.Equal(t, lock.Settled, s.State(t, record).State)
		s.Free(t, record)
	})
}

// no-lockout: an outage leaves as many releases without an answer as there are callers. Each that comes back removes
// the entry in its way, and does not wait for the clean-up, which makes eight calls at a time.
func TestCallersDoNotWaitForUnansweredReleases(t *testing.T) {
	bubbleOver(t, direct, func(t *testing.T, s *fault.Store, open func(...lock.Option) *lock.Locker) {
		const callers, trip = 400, 10 * time.Millisecond
		l := open()
		for range 5000 { // saves tokens
			requireGrant(t, l)
		}
		for range 2 { // an earlier answer of the store does not end a later silence
			var leases [callers]*lock.Lease
			for i := range leases {
				leases[i] = acquired(t, l, fmt.Sprint(key, i))
			}
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
			requireEach(t, lock.ErrUnavailable, meet(callers, func(i int) error { return leases[i].Release(t.Context()) }))

			var began time.Time
			time.AfterFunc(budget/2, func() {
				began = time.Now()
				close(back)
			})
			requireEach(t, nil, meet(callers, func(i int) error {
				e := acquired(t, l, fmt.Sprint(key, i))
				require.Less(t, time.Since(began), 10*trip)
				return e.Release(t.Context())
			}))
			s.Every(nil, fault.Release)
		}
	})
}
