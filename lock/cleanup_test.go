package lock_test

import (
	"context"
	"errors"
	"io"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/httplatch/httplatch/internal/testkit/must"
	"github.com/httplatch/httplatch/lock"
	"github.com/httplatch/httplatch/lock/internal/send"
	"github.com/httplatch/httplatch/lock/internal/testkit/fault"
)

// How many compare-and-deletes one claim costs whose answers are lost.
func TestRemovalsOfOneOrphan(t *testing.T) {
	for _, tt := range []struct {
		name     string
		faults   []fault.Func
		lag      time.Duration
		removals int
	}{
		{"applied, and both replies lost at once", []fault.Func{fault.LoseReply, fault.HangReply}, 15 * time.Second, 6},
		{"applied, and its only reply lost", []fault.Func{fault.HangReply, fault.Refuse, fault.Refuse, fault.Refuse, fault.Refuse, fault.Refuse, fault.Refuse, fault.Refuse}, 15 * time.Second, 1},
		{"not applied", []fault.Func{fault.HangRequest, fault.Refuse, fault.Refuse, fault.Refuse, fault.Refuse, fault.Refuse, fault.Refuse, fault.Refuse}, 15 * time.Second, 6},
		{"not applied, and the network is slow", []fault.Func{fault.HangRequest, fault.HangRequest}, 2 * time.Minute, 9},
		{"nothing can land late", []fault.Func{fault.LoseRequest, fault.Refuse, fault.Refuse, fault.Refuse, fault.Refuse, fault.Refuse, fault.Refuse, fault.Refuse}, 0, 2},
		{"refused", []fault.Func{fault.Refuse, fault.Refuse, fault.Refuse, fault.Refuse, fault.Refuse, fault.Refuse, fault.Refuse, fault.Refuse}, 15 * time.Second, 0},
	} {
		bubbleOverCase(t, tt.name, direct, func(t *testing.T, s *fault.Store, open func(...lock.Option) *lock.Locker) {
			s.Lag = tt.lag
			l := open(lock.WithLease(time.Hour), lock.WithMaxHold(time.Hour))
			s.Next(fault.Claim, tt.faults...)
			_, err := l.Acquire(t.Context(), key)
			require.ErrorIs(t, err, lock.ErrUnavailable)
			time.Sleep(time.Hour)
			require.Equal(t, tt.removals, s.Count(fault.Release))
			require.Equal(t, lock.Free, s.State(t, key).State)
			require.Zero(t, l.Stats().Backlog)
		})
	}
}

func TestIncidentCleanUpFreesTheKeyForOthers(t *testing.T) {
	bubble(t, func(t *testing.T, s *fault.Store, open func(...lock.Option) *lock.Locker) {
		var seen events
		l, other := open(lock.WithObserver(seen.observe)), open()
		s.Every(fault.HangReply, fault.Claim)
		_, err := l.Acquire(t.Context(), key)
		require.ErrorIs(t, err, lock.ErrUnknown)
		s.Every(nil, fault.Claim)
		synctest.Wait()
		require.Equal(t, lock.Free, s.State(t, key).State, "the clean-up removes the claim at once")
		require.Equal(t, 1, seen.count(lock.EventReaped))
		granted(t, other)
	})
}

// A caller that leaves during its claim leaves nothing behind.
func TestCanceledClaimIsCleanedUp(t *testing.T) {
	bubble(t, func(t *testing.T, s *fault.Store, open func(...lock.Option) *lock.Locker) {
		l := open()
		s.Next(fault.Claim, fault.Late(time.Second))
		ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
		defer cancel()
		began := time.Now()
		_, err := l.Acquire(ctx, key)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.Equal(t, 50*time.Millisecond, time.Since(began))
		time.Sleep(time.Second)
		synctest.Wait()
		time.Sleep(time.Second)
		require.Equal(t, lock.Free, s.State(t, key).State)
	})
}

// The clean-up after a lease whose claim had an unanswered send does not delete the receipt of the
// same token.
func TestCleanUpNeverDeletesAReceipt(t *testing.T) {
	bubble(t, func(t *testing.T, s *fault.Store, open func(...lock.Option) *lock.Locker) {
		l := open()
		s.Next(fault.Claim, fault.LoseReply)
		e := acquired(t, l, key)
		require.NoError(t, e.Settle(t.Context(), []byte("answer"), time.Hour))
		time.Sleep(10 * time.Minute)
		require.Equal(t, []byte("answer"), s.State(t, key).Receipt)
		s.Free(t, key)
	})
}

// A send without an answer can land after its acquire was refused, once the other holder has
// gone. Its entry is still removed.
func TestUnansweredClaimIsCleanedUp(t *testing.T) {
	bubble(t, func(t *testing.T, s *fault.Store, open func(...lock.Option) *lock.Locker) {
		l, other := open(), open()
		holder := acquired(t, other, key)
		s.Next(fault.Claim, fault.Late(time.Second))
		_, err := l.Acquire(t.Context(), key)
		require.ErrorIs(t, err, lock.ErrHeld)
		require.NoError(t, holder.Release(t.Context()))
		time.Sleep(time.Second - budget/3)
		synctest.Wait()
		time.Sleep(time.Second)
		require.Equal(t, lock.Free, s.State(t, key).State, "the late claim was cleaned up within a second")
	})
}

// A second send of a claim lands after the lease was granted and released.
func TestLateTwinAfterRelease(t *testing.T) {
	bubble(t, func(t *testing.T, s *fault.Store, open func(...lock.Option) *lock.Locker) {
		l, other := open(), open()
		s.Next(fault.Claim, fault.Late(2*time.Second))
		granted(t, l)
		time.Sleep(2 * time.Second)
		synctest.Wait()
		// This process, at once.
		granted(t, l)
		time.Sleep(time.Second)
		granted(t, other)
	})
}

// A clean-up outlasts the goroutines that still carry the claim, however long the client library's
// own time-out is.
func TestCleanUpOutlastsAStuckClient(t *testing.T) {
	bubbleOver(t, apart, func(t *testing.T, s *fault.Store, open func(...lock.Option) *lock.Locker) {
		l := open()
		s.Every(fault.Stuck(40*time.Second), fault.Claim)
		_, err := l.Acquire(t.Context(), key)
		require.ErrorIs(t, err, lock.ErrUnknown)
		s.Every(nil, fault.Claim)
		time.Sleep(40*time.Second - budget)
		synctest.Wait()
		require.Equal(t, lock.Held, s.State(t, key).State, "it landed")
		time.Sleep(5 * time.Second)
		require.Equal(t, lock.Free, s.State(t, key).State, "and was cleaned up, long after the lag of the network")
	})
}

// A clean-up that is over sends nothing more.
func TestCleanUpEnds(t *testing.T) {
	bubble(t, func(t *testing.T, s *fault.Store, open func(...lock.Option) *lock.Locker) {
		l := open()
		s.Next(fault.Claim, fault.LoseReply)
		granted(t, l)
		time.Sleep(s.Lag + 2*time.Second)
		sent := s.Count(fault.Release)
		time.Sleep(time.Hour)
		require.Equal(t, sent, s.Count(fault.Release))
		require.Less(t, sent, 20)
	})
}

// A clean-up goes on after an error, even if an earlier removal was answered: the claim may land
// after the removal.
func TestCleanUpGoesOnAfterAnError(t *testing.T) {
	bubble(t, func(t *testing.T, s *fault.Store, open func(...lock.Option) *lock.Locker) {
		l := open(lock.WithLease(time.Hour), lock.WithMaxHold(time.Hour))
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
				if err := (*land.Load())(); err != nil {
					t.Error(err)
				}
				return io.EOF
			}
			return apply()
		}, fault.Release)
		time.Sleep(s.Lag + 20*time.Second)
		require.EqualValues(t, 1, failed.Load())
		require.Equal(t, lock.Free, s.State(t, key).State)
		granted(t, l)
	})
}

// no-orphan, no-self-conflict: MaxLag counts from the return of a call. The clean-up counted it
// from the moment at which the Locker gave the call up.
func TestLagCountsFromTheReturnOfTheCall(t *testing.T) {
	bubble(t, func(t *testing.T, s *fault.Store, open func(...lock.Option) *lock.Locker) {
		l := open()
		s.Every(func(_ context.Context, apply func() error) error {
			time.Sleep(10 * time.Second) // the client library's own time-out
			time.AfterFunc(s.Lag-500*time.Millisecond, func() { _ = apply() })
			return io.EOF
		}, fault.Claim)
		_, err := l.Acquire(t.Context(), key)
		require.ErrorIs(t, err, lock.ErrUnknown)
		s.Every(nil, fault.Claim)
		time.Sleep(10*time.Second + s.Lag - 400*time.Millisecond)
		e, err := l.Acquire(t.Context(), key)
		require.NoError(t, err, "refused by its own dead claim")
		require.NoError(t, e.Release(t.Context()))
	})
}

// no-orphan: a clean-up counted an answer from before its claim had landed. The server then stalled,
// had the claim and the last delete in one batch, and executed the delete first.
func TestStalledServerBetweenTwoDeletes(t *testing.T) {
	bubble(t, func(t *testing.T, s *fault.Store, open func(...lock.Option) *lock.Locker) {
		l := open(lock.WithLease(10*time.Minute), lock.WithMaxHold(20*time.Minute))
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
		_, err := l.Acquire(t.Context(), key)
		require.ErrorIs(t, err, lock.ErrUnknown)
		time.Sleep(time.Minute)
		mu.Lock()
		defer mu.Unlock()
		require.Nil(t, late, "it was applied")
		require.Equal(t, lock.Free, s.State(t, key).State)
	})
}

// no-self-conflict: a dead claim of the same Locker refused a claim. Its clean-up ended, and forgot
// the token, before the answer was read.
func TestRefusedByAnEntryBeingCleanedUp(t *testing.T) {
	for offset := time.Duration(0); offset < 2*time.Second; offset += 100 * time.Millisecond {
		bubble(t, func(t *testing.T, s *fault.Store, open func(...lock.Option) *lock.Locker) {
			l := open(lock.WithLease(10*time.Minute), lock.WithMaxHold(20*time.Minute), lock.WithBudget(2*time.Second))
			s.Every(fault.Late(2*time.Second+s.Lag-time.Millisecond), fault.Claim) // as late as it may be
			_, err := l.Acquire(t.Context(), key)
			require.ErrorIs(t, err, lock.ErrUnknown)
			time.Sleep(s.Lag + offset)
			s.Every(fault.Slow(1200*time.Millisecond), fault.Claim)
			e, err := l.Acquire(t.Context(), key)
			require.NotErrorIs(t, err, lock.ErrHeld)
			require.NoError(t, e.Release(t.Context()))
		})
	}
}

// A dead claim of the same Locker is in the way, so the acquire claims a second time. The second
// claim does not write to the event that the clean-up of the first reports. Only the race
// detector finds such a write.
func TestCleanUpReadsNothingOfTheNextClaim(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var tokens []string
		s := &answering{claims: []func(lock.Claim) (lock.Entry, error){
			func(c lock.Claim) (lock.Entry, error) { // becomes the dead claim
				tokens = append(tokens, c.Token)
				return lock.Entry{}, io.EOF
			},
		}}
		var seen events
		l := lock.New(s, lock.WithLogger(quiet), lock.WithLease(lease), lock.WithBudget(budget), lock.WithObserver(seen.observe))
		ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
		defer cancel()
		_, err := l.Acquire(ctx, key)
		require.ErrorIs(t, err, lock.ErrUnknown)
		s.claims = []func(lock.Claim) (lock.Entry, error){
			func(lock.Claim) (lock.Entry, error) { return lock.Entry{}, io.EOF },
			func(lock.Claim) (lock.Entry, error) { return lock.Entry{State: lock.Held, Token: tokens[0]}, nil },
			func(lock.Claim) (lock.Entry, error) {
				time.Sleep(20 * time.Millisecond) // until the clean-up of the round before is over
				return lock.Entry{State: lock.Held, Token: "another"}, nil
			},
		}
		_, err = l.Acquire(t.Context(), key)
		require.ErrorIs(t, err, lock.ErrHeld)
		require.NoError(t, l.Close(t.Context()))
		require.GreaterOrEqual(t, seen.count(lock.EventReaped), 2)
	})
}

// A second send of the claim of a failed run lands after its release. Its entry must not say
// for the length of keep that the outcome is unknown.
func TestLateTwinOfAFailedRun(t *testing.T) {
	bubble(t, func(t *testing.T, s *fault.Store, open func(...lock.Option) *lock.Locker) {
		var f effect
		l, other := open(lock.WithKeep(keep)), open(lock.WithKeep(keep))
		s.Next(fault.Claim, fault.Late(2*time.Second))
		_, _, err := l.Once(t.Context(), key, print1, f.fail(errors.New("mine")))
		require.ErrorContains(t, err, "mine")
		time.Sleep(s.Lag + time.Second)
		must.Run(t)(other.Once(t.Context(), key, print1, f.run("ok")))
	})
}

// no-orphan: the removal of a claim of Once was given up when its lease could be over,
// though its entry says for as long as a record is kept that the outcome is not known.
// So an outage of a few minutes left keys that other processes refused for a day.
func TestOrphanOfOnceThatOutlastsAnOutage(t *testing.T) {
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
		must.Run(t)(other.Once(t.Context(), key, print1, f.run("answer")))
		s.Free(t, record)
	})
}

// A duplicate in the same process must not remove the entry of a run that is lost or hangs.
func TestLostRunIsNotAnOrphan(t *testing.T) {
	bubble(t, func(t *testing.T, s *fault.Store, open func(...lock.Option) *lock.Locker) {
		var f effect
		l := open(lock.WithKeep(keep))
		hung := make(chan struct{})
		result := make(chan error, 1)
		go func() {
			_, _, err := l.Once(context.Background(), key, print1, func(ctx context.Context) ([]byte, error) {
				f.runs.Add(1)
				s.Every(fault.HangRequest, fault.Renew)
				<-ctx.Done()
				<-hung
				return []byte("late"), nil
			})
			result <- err
		}()
		time.Sleep(2 * lease)
		for range 3 {
			_, _, err := l.Once(t.Context(), key, print1, f.run("again"))
			require.ErrorIs(t, err, lock.ErrAbandoned)
		}
		require.EqualValues(t, 1, f.runs.Load())
		// A late settle is accepted, since no caller took over.
		close(hung)
		require.NoError(t, <-result)
		require.Equal(t, "late", must.Replay(t)(l.Once(t.Context(), key, print1, f.run("again"))))
	})
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
			_, _, err := l.Once(t.Context(), key, print1, f.run("answer"))
			require.NoError(t, err)
			time.Sleep(time.Minute + 10*time.Second) // maxHold, and some of linger
			require.Equal(t, lock.Abandoned, s.State(t, record).State, "linger runs for %v from the last renewal", window)
			_, _, err = other.Once(t.Context(), key, print1, f.run("again"))
			require.ErrorIs(t, err, lock.ErrAbandoned)
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
		granted(t, l)

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
