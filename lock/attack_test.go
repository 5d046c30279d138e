package lock_test

import (
	"context"
	"errors"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/httplatch/httplatch/lock"
)

const (
	key    = "user=42"
	lease  = 3 * time.Second
	budget = 300 * time.Millisecond
)

var quiet = slog.New(slog.DiscardHandler)

// bubble runs a test in virtual time, over a store behind a network, and ends
// by closing the lockers and checking that key has no owner. It does so twice: with
// each call on a goroutine of its own, and with the first on the caller's.
func bubble(t *testing.T, run func(t *testing.T, s *scripted, open func(...lock.Option) *lock.Locker)) {
	t.Helper()
	for name, as := range map[string]func(*scripted) lock.Store{"apart": apart, "direct": direct} {
		t.Run(name, func(t *testing.T) {
			t.Helper()
			bubbleOver(t, as, run)
		})
	}
}

func bubbleOver(t *testing.T, as func(*scripted) lock.Store, run func(t *testing.T, s *scripted, open func(...lock.Option) *lock.Locker)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		s := newScripted()
		var lockers []*lock.Locker
		run(t, s, func(opts ...lock.Option) *lock.Locker {
			opts = append([]lock.Option{lock.WithLogger(quiet), lock.WithLease(lease), lock.WithBudget(budget), lock.WithMaxHold(time.Minute)}, opts...)
			l := lock.New(as(s), opts...)
			lockers = append(lockers, l)
			return l
		})
		s.every(nil, claim, renew, settle, release, get)
		for _, l := range lockers {
			require.NoError(t, l.Close(t.Context()))
		}
		synctest.Wait()
	})
}

func TestLostReplyOfClaimIsRecovered(t *testing.T) {
	for name, f := range map[string]fault{"reply lost": loseReply, "reply hangs": hangReply, "request lost": loseRequest, "request hangs": hangRequest, "refused once": refuse} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, s *scripted, open func(...lock.Option) *lock.Locker) {
				var seen events
				l := open(lock.WithObserver(seen.observe))
				s.next(claim, f)
				began := time.Now()
				e, err := l.Acquire(t.Context(), key)
				require.NoError(t, err)
				require.Less(t, time.Since(began), budget)
				require.Equal(t, lock.Held, s.state(t, key).State)
				require.NoError(t, e.Release(t.Context()))
				require.Equal(t, lock.Free, s.state(t, key).State)
				if name != "refused once" {
					require.Equal(t, 1, seen.count(lock.EventRecovered))
				}
				time.Sleep(time.Minute)
			})
		})
	}
}

// The founding incident: no reply at all, and a claim that was applied.
func TestIncidentClaimNeverAnswered(t *testing.T) {
	bubble(t, func(t *testing.T, s *scripted, open func(...lock.Option) *lock.Locker) {
		l, other := open(), open()
		s.every(hangReply, claim).every(hangRequest, release)
		began := time.Now()
		_, err := l.Acquire(t.Context(), key)
		require.ErrorIs(t, err, lock.ErrUnknown)
		require.ErrorIs(t, err, lock.ErrUnavailable)
		require.NotErrorIs(t, err, lock.ErrHeld)
		require.Equal(t, budget, time.Since(began))
		require.Equal(t, lock.Held, s.state(t, key).State, "the claim was applied")

		s.every(nil, claim, release)
		e, err := l.Acquire(t.Context(), key)
		require.NoError(t, err, "the process must not be locked out by itself")
		require.NoError(t, e.Release(t.Context()))
		e, err = other.Acquire(t.Context(), key)
		require.NoError(t, err)
		require.NoError(t, e.Release(t.Context()))
		time.Sleep(time.Minute)
	})
}

func TestIncidentReaperFreesTheKeyForOthers(t *testing.T) {
	bubble(t, func(t *testing.T, s *scripted, open func(...lock.Option) *lock.Locker) {
		var seen events
		l, other := open(lock.WithObserver(seen.observe)), open()
		s.every(hangReply, claim)
		_, err := l.Acquire(t.Context(), key)
		require.ErrorIs(t, err, lock.ErrUnknown)
		s.every(nil, claim)
		synctest.Wait()
		require.Equal(t, lock.Free, s.state(t, key).State, "the reaper removes the claim at once")
		require.Equal(t, 1, seen.count(lock.EventReaped))
		e, err := other.Acquire(t.Context(), key)
		require.NoError(t, err)
		require.NoError(t, e.Release(t.Context()))
	})
}

// attack A1 a: two claims of one process must not meet at the server, or the
// one that reads its refusal first deletes the other, which lives.
func TestA1aDoubleClickInsideOneRoundTrip(t *testing.T) {
	bubble(t, func(t *testing.T, s *scripted, open func(...lock.Option) *lock.Locker) {
		l := open()
		s.every(slow(50*time.Millisecond), claim)
		first := make(chan *lock.Lease, 1)
		go func() {
			e, err := l.Acquire(context.Background(), key)
			if err != nil {
				t.Error(err)
			}
			first <- e
		}()
		synctest.Wait() // the claim is on its way
		_, err := l.Acquire(t.Context(), key)
		require.ErrorIs(t, err, lock.ErrHeld)
		require.Equal(t, 1, s.count(claim), "refused without a round trip")
		e := <-first
		require.NoError(t, e.Context().Err())
		require.Equal(t, lock.Held, s.state(t, key).State)
		require.NoError(t, e.Release(t.Context()))
	})
}

// attack A1 b: a settle that is not answered yet keeps the token alive. A
// duplicate must not delete the claim from under it.
func TestA1bDuplicateDuringBackgroundSettle(t *testing.T) {
	bubble(t, func(t *testing.T, s *scripted, open func(...lock.Option) *lock.Locker) {
		l := open()
		e, err := l.Acquire(t.Context(), key)
		require.NoError(t, err)
		s.every(hangRequest, settle)
		require.ErrorIs(t, e.Settle(t.Context(), []byte("answer"), time.Hour), lock.ErrUnknown)

		_, err = l.Acquire(t.Context(), key)
		require.ErrorIs(t, err, lock.ErrUnavailable, "not refused: its own call is what is missing")
		require.NotErrorIs(t, err, lock.ErrHeld)
		require.Equal(t, lock.Held, s.state(t, key).State, "nobody deleted the claim")

		time.Sleep(4 * lease)
		require.Equal(t, lock.Held, s.state(t, key).State, "a pending settle keeps renewing")
		s.every(nil, settle)
		_, err = l.Acquire(t.Context(), key)
		require.ErrorIs(t, err, lock.ErrSettled, "the duplicate asked for the settle again, and met the receipt")
		require.Equal(t, []byte("answer"), s.state(t, key).Receipt)
		s.forget(t, key)
	})
}

// attack A1 d: the sweep after a lease whose claim had an unanswered send must
// not delete the receipt that the same token has left.
func TestA1dSweepNeverDeletesAReceipt(t *testing.T) {
	bubble(t, func(t *testing.T, s *scripted, open func(...lock.Option) *lock.Locker) {
		l := open()
		s.next(claim, loseReply)
		e, err := l.Acquire(t.Context(), key)
		require.NoError(t, err)
		require.NoError(t, e.Settle(t.Context(), []byte("answer"), time.Hour))
		time.Sleep(10 * time.Minute)
		require.Equal(t, []byte("answer"), s.state(t, key).Receipt)
		s.forget(t, key)
	})
}

// attack A4.1: a release that follows a settle of unknown outcome would free
// what was settled.
func TestA4ReleaseAfterSettleIsNoOp(t *testing.T) {
	bubble(t, func(t *testing.T, s *scripted, open func(...lock.Option) *lock.Locker) {
		l := open()
		e, err := l.Acquire(t.Context(), key)
		require.NoError(t, err)
		s.next(settle, loseRequest, hangRequest, hangRequest, hangRequest)
		require.ErrorIs(t, e.Settle(t.Context(), nil, time.Hour), lock.ErrUnknown)
		require.NoError(t, e.Release(t.Context()))
		require.Zero(t, s.count(release))
		time.Sleep(time.Second)
		require.Equal(t, lock.Settled, s.state(t, key).State)
		s.forget(t, key)
	})
}

// attack B1.4: an acquire that was refused still has to sweep for a send that
// was not answered: it lands when the other holder has gone.
func TestB1RefusedAcquireWithUnansweredSendIsSwept(t *testing.T) {
	bubble(t, func(t *testing.T, s *scripted, open func(...lock.Option) *lock.Locker) {
		l, other := open(), open()
		holder, err := other.Acquire(t.Context(), key)
		require.NoError(t, err)
		s.next(claim, late(time.Second))
		_, err = l.Acquire(t.Context(), key)
		require.ErrorIs(t, err, lock.ErrHeld)
		require.NoError(t, holder.Release(t.Context()))
		time.Sleep(time.Second - budget/3)
		synctest.Wait()
		time.Sleep(time.Second)
		require.Equal(t, lock.Free, s.state(t, key).State, "the late claim was swept within a second")
	})
}

// attack B1.3 and B1.5: a twin of a claim that was granted and released lands
// afterwards.
func TestB1LateTwinAfterRelease(t *testing.T) {
	bubble(t, func(t *testing.T, s *scripted, open func(...lock.Option) *lock.Locker) {
		l, other := open(), open()
		s.next(claim, late(2*time.Second))
		e, err := l.Acquire(t.Context(), key)
		require.NoError(t, err)
		require.NoError(t, e.Release(t.Context()))
		time.Sleep(2 * time.Second)
		synctest.Wait()
		// This process, at once.
		e, err = l.Acquire(t.Context(), key)
		require.NoError(t, err)
		require.NoError(t, e.Release(t.Context()))
		time.Sleep(time.Second)
		e, err = other.Acquire(t.Context(), key)
		require.NoError(t, err)
		require.NoError(t, e.Release(t.Context()))
	})
}

// attack B1.6: the second send was certainly not applied; that says nothing of
// the first.
func TestB1OutcomeIsFoldedOverAllSends(t *testing.T) {
	bubble(t, func(t *testing.T, s *scripted, open func(...lock.Option) *lock.Locker) {
		l := open()
		s.every(refuse, claim)
		s.next(claim, loseReply)
		_, err := l.Acquire(t.Context(), key)
		require.ErrorIs(t, err, lock.ErrUnknown)
		synctest.Wait()
		require.Equal(t, lock.Free, s.state(t, key).State)
	})
}

func TestNotAppliedIsNotUnknown(t *testing.T) {
	bubble(t, func(t *testing.T, s *scripted, open func(...lock.Option) *lock.Locker) {
		var seen events
		l := open(lock.WithObserver(seen.observe))
		s.every(refuse, claim)
		_, err := l.Acquire(t.Context(), key)
		require.ErrorIs(t, err, lock.ErrUnavailable)
		require.NotErrorIs(t, err, lock.ErrUnknown)
		require.Equal(t, 1, seen.count(lock.EventUnavailable))
		require.Zero(t, s.count(release), "nothing to sweep")
	})
}

// A sweep must outlive goroutines that still carry the claim, however long the
// client library's own time-out is.
func TestB1SweepOutlivesAStuckClient(t *testing.T) {
	bubbleOver(t, apart, func(t *testing.T, s *scripted, open func(...lock.Option) *lock.Locker) {
		l := open()
		s.every(stuck(40*time.Second), claim)
		_, err := l.Acquire(t.Context(), key)
		require.ErrorIs(t, err, lock.ErrUnknown)
		s.every(nil, claim)
		time.Sleep(40*time.Second - budget)
		synctest.Wait()
		require.Equal(t, lock.Held, s.state(t, key).State, "it landed")
		time.Sleep(5 * time.Second)
		require.Equal(t, lock.Free, s.state(t, key).State, "and was swept, long after the lag of the network")
	})
}

// Nothing is left to do once a sweep is over.
func TestSweepEnds(t *testing.T) {
	bubble(t, func(t *testing.T, s *scripted, open func(...lock.Option) *lock.Locker) {
		l := open()
		s.next(claim, loseReply)
		e, err := l.Acquire(t.Context(), key)
		require.NoError(t, err)
		require.NoError(t, e.Release(t.Context()))
		time.Sleep(s.lag + 2*time.Second)
		sent := s.count(release)
		time.Sleep(time.Hour)
		require.Equal(t, sent, s.count(release))
		require.Less(t, sent, 20)
	})
}

// attack B5: a hung handler whose key is freed by an operator, or lost, locks
// this process out no longer than it takes to learn of it.
func TestB5HungHandler(t *testing.T) {
	for name, lost := range map[string]func(t *testing.T, s *scripted){
		"freed by an operator": func(t *testing.T, s *scripted) { t.Helper(); s.forget(t, key) },
		"store gone":           func(t *testing.T, s *scripted) { t.Helper(); s.every(hangRequest, renew) },
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, s *scripted, open func(...lock.Option) *lock.Locker) {
				var seen events
				l, other := open(lock.WithObserver(seen.observe)), open()
				hung, err := l.Acquire(t.Context(), key)
				require.NoError(t, err)
				began := time.Now()
				lost(t, s)
				if s.state(t, key).State == lock.Free {
					e, err := other.Acquire(t.Context(), key)
					require.NoError(t, err, "other processes go on at once")
					require.NoError(t, e.Release(t.Context()))
				}
				<-hung.Context().Done()
				require.ErrorIs(t, context.Cause(hung.Context()), lock.ErrLost)
				require.LessOrEqual(t, time.Since(began), lease)
				s.every(nil, renew)
				synctest.Wait()
				e, err := l.Acquire(t.Context(), key)
				require.NoError(t, err)
				require.NoError(t, e.Context().Err())
				require.ErrorIs(t, hung.Release(t.Context()), lock.ErrLost)
				require.Equal(t, lock.Held, s.state(t, key).State, "the successor's entry is not the old holder's to release")
				require.NoError(t, e.Release(t.Context()))
				require.Equal(t, 1, seen.count(lock.EventLost))
			})
		})
	}
}

// attack B6: Close must not free a key under work that runs on.
func TestB6CloseDoesNotReleaseUnderWork(t *testing.T) {
	bubble(t, func(t *testing.T, s *scripted, open func(...lock.Option) *lock.Locker) {
		l, other := open(), open()
		e, err := l.Acquire(t.Context(), key)
		require.NoError(t, err)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		err = l.Close(ctx)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.ErrorIs(t, context.Cause(e.Context()), lock.ErrClosed)
		require.Equal(t, lock.Held, s.state(t, key).State)
		_, err = other.Acquire(t.Context(), key)
		require.ErrorIs(t, err, lock.ErrHeld)
		time.Sleep(lease)
		require.Equal(t, lock.Free, s.state(t, key).State, "left to lapse, not renewed")
		_ = e.Release(t.Context()) // the work returns at last
	})
}

// attack C3 and C12: validity counts from before the first send of the token.
func TestC12ValidityCountsFromTheFirstSend(t *testing.T) {
	bubbleOver(t, apart, func(t *testing.T, s *scripted, open func(...lock.Option) *lock.Locker) {
		l := open()
		s.next(claim, hangRequest, slow(budget/2))
		began := time.Now()
		e, err := l.Acquire(t.Context(), key)
		require.NoError(t, err)
		require.Greater(t, time.Since(began), budget/2, "what the answer took is gone")
		s.every(hangRequest, renew)
		<-e.Context().Done()
		require.Less(t, time.Since(began), lease)
		_ = e.Release(t.Context())
	})
}

// attack C4: "no" after an unanswered send of the same release means done.
func TestC4LostReplyOfReleaseIsNotALoss(t *testing.T) {
	bubble(t, func(t *testing.T, s *scripted, open func(...lock.Option) *lock.Locker) {
		var seen events
		l := open(lock.WithObserver(seen.observe))
		e, err := l.Acquire(t.Context(), key)
		require.NoError(t, err)
		s.next(release, loseReply)
		require.NoError(t, e.Release(t.Context()))
		require.Equal(t, 1, seen.count(lock.EventReleased))
		require.Zero(t, seen.count(lock.EventLost))
	})
}

// The answer to the first call of a release is "no": then it is a loss.
func TestFirstNoOfReleaseIsALoss(t *testing.T) {
	bubble(t, func(t *testing.T, s *scripted, open func(...lock.Option) *lock.Locker) {
		l := open()
		err := l.Do(t.Context(), key, func(context.Context) error {
			s.forget(t, key)
			return errors.New("mine")
		})
		require.ErrorIs(t, err, lock.ErrLost)
		require.ErrorContains(t, err, "mine")
	})
}

// A release that is never answered keeps no caller out: not this process once the
// store is back, and not for longer than the lease.
func TestIncidentReleaseNeverAnswered(t *testing.T) {
	bubble(t, func(t *testing.T, s *scripted, open func(...lock.Option) *lock.Locker) {
		l := open()
		s.every(hangRequest, release)
		began := time.Now()
		require.NoError(t, l.Do(t.Context(), key, func(context.Context) error { return nil }))
		require.Equal(t, budget, time.Since(began), "the caller waits for its budget, no longer")

		time.Sleep(lease / 3)
		_, err := l.Acquire(t.Context(), key)
		require.ErrorIs(t, err, lock.ErrUnavailable)
		require.NotErrorIs(t, err, lock.ErrHeld)

		s.every(nil, release)
		began = time.Now()
		e, err := l.Acquire(t.Context(), key)
		require.NoError(t, err)
		require.LessOrEqual(t, time.Since(began), budget)
		require.NoError(t, e.Release(t.Context()))
	})
}

func TestReleaseIsNotAskedForEver(t *testing.T) {
	bubble(t, func(t *testing.T, s *scripted, open func(...lock.Option) *lock.Locker) {
		l := open()
		s.every(hangRequest, release)
		require.NoError(t, l.Do(t.Context(), key, func(context.Context) error { return nil }))
		time.Sleep(2 * lease)
		s.every(nil, release)
		time.Sleep(s.lag + 10*time.Second) // the last sweep
		sent := s.count(release)
		time.Sleep(time.Hour)
		require.Equal(t, sent, s.count(release))
	})
}
