package lock_test

import (
	"context"
	"io"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/httplatch/httplatch/internal/testkit/must"
	"github.com/httplatch/httplatch/lock"
	"github.com/httplatch/httplatch/lock/internal/send"
	"github.com/httplatch/httplatch/lock/internal/testkit/fault"
)

// How many compare-and-deletes one claim costs whose answers are lost.
func TestRemovalsOfOneOrphan(t *testing.T) {
	refused := slices.Repeat([]fault.Func{fault.Refuse}, 8)
	for _, tt := range []struct {
		name     string
		faults   []fault.Func
		lag      time.Duration
		removals int
	}{
		{"applied, and both replies lost at once", []fault.Func{fault.LoseReply, fault.HangReply}, 15 * time.Second, 6},
		{"applied, and its only reply lost", append([]fault.Func{fault.HangReply}, refused...), 15 * time.Second, 1},
		{"not applied", append([]fault.Func{fault.HangRequest}, refused...), 15 * time.Second, 6},
		{"not applied, and the network is slow", []fault.Func{fault.HangRequest, fault.HangRequest}, 2 * time.Minute, 9},
		{"nothing can land late", append([]fault.Func{fault.LoseRequest}, refused...), 0, 2},
		{"refused", refused, 15 * time.Second, 0},
	} {
		bubbleOverCase(t, tt.name, direct, func(t *testing.T, s *fault.Store, open func(...lock.Option) *lock.Locker) {
			s.Lag = tt.lag
			l := open(lock.WithLease(time.Hour), lock.WithMaxHold(time.Hour))
			s.Next(fault.Claim, tt.faults...)
			require.ErrorIs(t, l.Do(t.Context(), key, nil), lock.ErrUnavailable)
			time.Sleep(time.Hour)
			require.Equal(t, tt.removals, s.Count(fault.Release))
			require.Equal(t, lock.Free, s.State(t, key).State)
			require.Zero(t, l.Stats().Backlog)
		})
	}
}

// A clean-up goes on after an error: the claim may land after a removal that was answered.
func TestCleanUpGoesOnAfterAnError(t *testing.T) {
	solo(t, func(t *testing.T, s *fault.Store, l *lock.Locker) {
		var land atomic.Pointer[func() error]
		s.Every(func(ctx context.Context, apply func() error) error {
			land.Store(&apply)
			return fault.HangRequest(ctx, apply)
		}, fault.Claim)
		_, err := l.Acquire(t.Context(), key)
		require.ErrorIs(t, err, lock.ErrUnknown)
		s.Every(nil, fault.Claim)
		givenUp := time.Now()
		var answered, failed atomic.Int32
		s.Every(func(_ context.Context, apply func() error) error {
			switch {
			case time.Since(givenUp) < s.Lag: // it may land yet, and that is known
			case answered.Add(1) == 1:
			case failed.CompareAndSwap(0, 1):
				assert.NoError(t, (*land.Load())())
				return io.EOF
			}
			return apply()
		}, fault.Release)
		time.Sleep(s.Lag + 20*time.Second)
		require.EqualValues(t, 1, failed.Load())
		require.Equal(t, lock.Free, s.State(t, key).State)
		requireGrant(t, l)
	}, lock.WithLease(time.Hour), lock.WithMaxHold(time.Hour))
}

// no-orphan, no-self-conflict: MaxLag counts from the return of a call. The clean-up counted it
// from the moment at which the Locker gave the call up.
func TestLagCountsFromTheReturnOfTheCall(t *testing.T) {
	solo(t, func(t *testing.T, s *fault.Store, l *lock.Locker) {
		s.Every(func(_ context.Context, apply func() error) error {
			time.Sleep(10 * time.Second) // the client library's own time-out
			time.AfterFunc(s.Lag-500*time.Millisecond, func() { _ = apply() })
			return io.EOF
		}, fault.Claim)
		require.ErrorIs(t, l.Do(t.Context(), key, nil), lock.ErrUnknown)
		s.Every(nil, fault.Claim)
		time.Sleep(10*time.Second + s.Lag - 400*time.Millisecond)
		e := acquired(t, l, key)
		require.NoError(t, e.Release(t.Context()))
	})
}

// no-orphan: a clean-up counted an answer from before its claim had landed. The server then stalled,
// had the claim and the last delete in one batch, and executed the delete first.
func TestStalledServerBetweenTwoDeletes(t *testing.T) {
	solo(t, func(t *testing.T, s *fault.Store, l *lock.Locker) {
		var mu sync.Mutex
		var late func() error
		var returned time.Time
		s.Every(func(ctx context.Context, apply func() error) error {
			<-ctx.Done()
			mu.Lock()
			defer mu.Unlock()
			late, returned = apply, time.Now()
			return ctx.Err()
		}, fault.Claim)
		s.Every(func(_ context.Context, apply func() error) error {
			err := apply()
			mu.Lock()
			defer mu.Unlock()
			// The claim has landed by now, and waits for the server like this delete.
			if late != nil && time.Since(returned) >= s.Lag {
				_ = late()
				late = nil
			}
			return err
		}, fault.Release)
		require.ErrorIs(t, l.Do(t.Context(), key, nil), lock.ErrUnknown)
		time.Sleep(time.Minute)
		mu.Lock()
		defer mu.Unlock()
		require.Nil(t, late, "it was applied")
		require.Equal(t, lock.Free, s.State(t, key).State)
	}, lock.WithLease(10*time.Minute), lock.WithMaxHold(20*time.Minute))
}

// no-self-conflict: a dead claim of the same Locker refused a claim. Its clean-up ended, and forgot
// the token, before the answer was read.
func TestRefusedByAnEntryBeingCleanedUp(t *testing.T) {
	for offset := time.Duration(0); offset < 2*time.Second; offset += 100 * time.Millisecond {
		solo(t, func(t *testing.T, s *fault.Store, l *lock.Locker) {
			s.Every(fault.Late(2*time.Second+s.Lag-time.Millisecond), fault.Claim) // as late as it may be
			require.ErrorIs(t, l.Do(t.Context(), key, nil), lock.ErrUnknown)
			time.Sleep(s.Lag + offset)
			s.Every(fault.Slow(1200*time.Millisecond), fault.Claim)
			e, err := l.Acquire(t.Context(), key)
			require.NotErrorIs(t, err, lock.ErrHeld)
			require.NoError(t, e.Release(t.Context()))
		}, lock.WithLease(10*time.Minute), lock.WithMaxHold(20*time.Minute), lock.WithBudget(2*time.Second))
	}
}

// no-orphan: the removal of a claim of Once was given up when its lease could be over. So an outage of a few minutes
// left keys that other processes refused for as long as a record is kept.
func TestOrphanOfOnceThatOutlastsAnOutage(t *testing.T) {
	bubbleOver(t, direct, func(t *testing.T, s *fault.Store, open func(...lock.Option) *lock.Locker) {
		var f effect
		l, other := open(lock.WithKeep(keep)), open(lock.WithKeep(keep))
		s.Every(fault.HangReply, fault.Claim)
		s.Every(fault.HangRequest, fault.Release)
		require.ErrorIs(t, ask(t, l, print1), lock.ErrUnknown)
		s.Every(fault.HangRequest, fault.Claim)
		time.Sleep(10 * time.Minute)
		require.ErrorIs(t, l.Do(t.Context(), "another", nil), lock.ErrUnknown)
		s.Every(nil, fault.Claim, fault.Release)
		time.Sleep(time.Minute)
		must.Run(t)(other.Once(t.Context(), key, print1, f.run("answer")))
		s.Free(t, record)
	})
}

// A duplicate in the same process must not remove the entry of a run that is lost or hangs.
func TestLostRunIsNotAnOrphan(t *testing.T) {
	solo(t, func(t *testing.T, s *fault.Store, l *lock.Locker) {
		hung := make(chan struct{})
		startRun(l, func(context.Context) ([]byte, error) { <-hung; return []byte("late"), nil })
		s.Every(fault.HangRequest, fault.Renew)
		time.Sleep(2 * lease)
		for range 3 {
			require.ErrorIs(t, ask(t, l, print1), lock.ErrAbandoned)
		}
		close(hung)
		synctest.Wait()
		require.Equal(t, "late", must.Replay(t)(l.Once(t.Context(), key, print1, mustNotRun)), "no caller took over")
	}, lock.WithKeep(keep))
}

// once: the claim of a run that succeeded had an unanswered send. When its settle was given up, the
// clean-up of the claim deleted the entry that shows the run.
func TestCleanUpOfASucceededRun(t *testing.T) {
	for name, first := range map[string]fault.Func{"all answered": nil, "claim's first reply lost": fault.LoseReply} {
		bubbleCase(t, name, func(t *testing.T, s *fault.Store, open func(...lock.Option) *lock.Locker) {
			const window = 30 * time.Second // as of Dedupe
			var f effect
			l, other := open(lock.WithKeep(window)), open(lock.WithKeep(window))
			if first != nil {
				s.Next(fault.Claim, first)
			}
			s.Every(fault.Refuse, fault.Settle)
			must.Run(t)(l.Once(t.Context(), key, print1, f.run("answer")))
			time.Sleep(time.Minute + 10*time.Second) // maxHold, and some of linger
			require.Equal(t, lock.Abandoned, s.State(t, record).State, "linger runs for %v from the last renewal", window)
			require.ErrorIs(t, ask(t, other, print1), lock.ErrAbandoned)
			require.EqualValues(t, 1, f.runs.Load())
			s.Every(nil, fault.Settle)
			time.Sleep(5 * time.Second)
			require.Equal(t, lock.Settled, s.State(t, record).State, "the background goes on until lease + linger is over")
		})
	}
}

// Clean-up that finds nothing to send costs no token, also while callers talk to the store.
func TestCleanUpThatSendsNothingCostsNoToken(t *testing.T) {
	bubbleOver(t, direct, func(t *testing.T, s *fault.Store, open func(...lock.Option) *lock.Locker) {
		l := open()
		var left leftClaim
		s.Next(fault.Claim, left.leave)
		requireGrant(t, l)

		hung := make(chan struct{})
		s.Next(fault.Claim, func(_ context.Context, apply func() error) error { <-hung; return apply() })
		var all sync.WaitGroup
		all.Go(func() { _ = l.Do(t.Context(), "other", nothing) }) // the caller that talks
		synctest.Wait()
		tokens := l.Stats().Retries
		left.flight.Arrive(send.Nothing)
		synctest.Wait()
		require.Equal(t, 1, s.Count(fault.Release))
		require.Equal(t, tokens, l.Stats().Retries)
		close(hung)
		all.Wait()
	})
}

const (
	longLag = 2 * time.Minute       // of the network
	soon    = 50 * time.Millisecond // until a late reply comes
)

// A claim that was left in flight is removed once: when its reply has come, or, if the reply is lost, when the entry
// is found. Otherwise it may land for as long as the network takes.
func TestArrivalEndsTheCleanUp(t *testing.T) {
	for name, outcome := range map[string]send.Landing{"answered": send.Answered, "lost": send.Unanswered} {
		t.Run(name, func(t *testing.T) {
			for when, land := range map[string]bool{"landed": true, "not landed": false} {
				bubbleOverCase(t, when, direct, func(t *testing.T, s *fault.Store, open func(...lock.Option) *lock.Locker) {
					s.Lag = longLag
					var left leftClaim
					l := open()
					s.Next(fault.Claim, left.leave)
					require.NoError(t, l.Do(t.Context(), key, nothing))
					time.Sleep(soon)
					require.Equal(t, 1, s.Count(fault.Release), "what is likely to be answered is waited for")
					if land {
						require.NoError(t, left.apply())
					}
					left.flight.Arrive(outcome)
					synctest.Wait()
					require.Equal(t, 2, s.Count(fault.Release))
					require.Equal(t, lock.Free, s.State(t, key).State)
					time.Sleep(longLag / 2)
					enough := outcome == send.Answered || land
					require.Equal(t, enough, s.Count(fault.Release) == 2, "one is enough only if nothing can land any more")
					if !enough {
						require.NoError(t, left.apply())
						time.Sleep(longLag/2 + time.Second)
						require.Equal(t, lock.Free, s.State(t, key).State)
					}
					began := time.Now()
					require.NoError(t, l.Close(t.Context()))
					if enough {
						require.Zero(t, time.Since(began), "there is nothing left to do")
					}
				})
			}
		})
	}
}

// A reply that does not come in time is no longer hoped for.
func TestArrivalIsNotWaitedForLong(t *testing.T) {
	bubbleOver(t, direct, func(t *testing.T, s *fault.Store, open func(...lock.Option) *lock.Locker) {
		var left leftClaim
		s.Next(fault.Claim, left.leave)
		require.NoError(t, open().Do(t.Context(), key, nothing))
		time.Sleep(2 * time.Second)
		require.NoError(t, left.apply()) // the server has it, and its reply is lost
		time.Sleep(6 * time.Second)
		require.Equal(t, lock.Free, s.State(t, key).State)
		left.flight.Arrive(send.Unanswered)
	})
}

// Between the landing and the late reply, the token is known as dead: a caller
// that meets it in this process removes it. To others it looks like any other.
func TestLandedBeforeItsArrival(t *testing.T) {
	bubbleOver(t, direct, func(t *testing.T, s *fault.Store, open func(...lock.Option) *lock.Locker) {
		s.Lag = longLag
		var left leftClaim
		l, other := open(), open()
		s.Next(fault.Claim, left.leave)
		require.NoError(t, l.Do(t.Context(), key, nothing))
		require.NoError(t, left.apply())
		require.ErrorIs(t, other.Do(t.Context(), key, nil), lock.ErrHeld)
		e := acquired(t, l, key)
		left.flight.Arrive(send.Answered)
		synctest.Wait()
		require.Equal(t, lock.Held, s.State(t, key).State, "the clean-up leaves the entry of the next caller")
		require.NoError(t, e.Context().Err())
		require.NoError(t, e.Release(t.Context()))
	})
}

// A store may return from a call before its command is through, if it says so:
// the clean-up of the claim goes on for as long as a goroutine carries it.
func TestCallsThatAreLeftBehind(t *testing.T) {
	for name, reported := range map[string]bool{"reported": true, "not reported": false} {
		bubbleOverCase(t, name, direct, func(t *testing.T, s *fault.Store, open func(...lock.Option) *lock.Locker) {
			var left leftClaim
			silent := func(_ context.Context, apply func() error) error { left.apply = apply; return io.EOF }
			s.Next(fault.Claim, map[bool]fault.Func{true: left.leave, false: silent}[reported], full)
			l := open(lock.WithLease(time.Hour), lock.WithMaxHold(2*time.Hour))
			require.ErrorIs(t, l.Do(t.Context(), key, nil), lock.ErrUnknown)
			time.Sleep(time.Minute)
			require.NoError(t, left.apply())
			if reported {
				left.flight.Arrive(send.Unanswered)
			}
			time.Sleep(4 * time.Second) // less than its lease
			require.Equal(t, reported, s.State(t, key).State == lock.Free, "an orphan, as no process looked for it any more")
		})
	}
}

// leftClaim is a claim that a store does not wait for any longer.
type leftClaim struct {
	flight *send.Flight
	apply  func() error
}

// leave is the fault: the call returns, and counts the send that it leaves in flight.
func (c *leftClaim) leave(ctx context.Context, apply func() error) error {
	c.flight, c.apply = send.Depart(ctx), apply
	return io.EOF
}
