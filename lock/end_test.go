package lock_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"runtime"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/httplatch/httplatch/internal/testkit/must"
	"github.com/httplatch/httplatch/lock"
	"github.com/httplatch/httplatch/lock/internal/testkit/fault"
)

// A settle that is not answered yet keeps the token alive: a duplicate must not delete its claim.
func TestDuplicateDuringBackgroundSettle(t *testing.T) {
	solo(t, func(t *testing.T, s *fault.Store, l *lock.Locker) {
		e := acquired(t, l, key)
		s.Every(fault.HangRequest, fault.Settle)
		require.ErrorIs(t, e.Settle(t.Context(), []byte("answer"), time.Hour), lock.ErrUnknown)

		_, err := l.Acquire(t.Context(), key)
		require.ErrorIs(t, err, lock.ErrUnavailable, "not refused: its own call is what is missing")
		require.NotErrorIs(t, err, lock.ErrHeld)
		require.Equal(t, lock.Held, s.State(t, key).State, "the claim was not deleted")
		require.ErrorIs(t, l.With(lock.WithFailOpen()).Do(t.Context(), key, nil), lock.ErrHeld, "the work is done, so it is not done again")

		time.Sleep(4 * lease)
		require.Equal(t, lock.Held, s.State(t, key).State, "a pending settle keeps renewing")
		s.Every(nil, fault.Settle)
		require.ErrorIs(t, l.Do(t.Context(), key, nil), lock.ErrSettled, "the duplicate asked for the settle again, and met the receipt")
		require.Equal(t, []byte("answer"), s.State(t, key).Receipt)
		s.Free(t, key)
	})
}

// A settle without an answer loses neither the answer nor the key.
func TestSettleInTheBackground(t *testing.T) {
	for name, f := range map[string]fault.Func{"not applied": fault.Refuse, "request lost": fault.HangRequest, "reply lost": fault.HangReply} {
		bubbleCase(t, name, func(t *testing.T, s *fault.Store, open func(...lock.Option) *lock.Locker) {
			var runs effect
			l, other := open(lock.WithKeep(keep)), open(lock.WithKeep(keep))
			s.Every(f, fault.Settle)
			require.Equal(t, "answer", must.Run(t)(l.Once(t.Context(), key, print1, runs.run("answer"))))
			time.Sleep(10 * lease)
			_, _, err := other.Once(t.Context(), key, print1, runs.run("again"))
			if err != nil {
				require.ErrorIs(t, err, lock.ErrHeld)
			}
			s.Every(nil, fault.Settle)
			time.Sleep(6 * time.Second)
			require.Equal(t, "answer", must.Replay(t)(other.Once(t.Context(), key, print1, runs.run("again"))))
			require.EqualValues(t, 1, runs.runs.Load())
		})
	}
}

// After an outage that is longer than the lease, the process that has the answer leaves it before it claims the key
// again. The outcome is unknown to others only.
func TestSettleOutlivesItsLease(t *testing.T) {
	bubble(t, func(t *testing.T, s *fault.Store, open func(...lock.Option) *lock.Locker) {
		var runs effect
		var seen events
		l, other := open(lock.WithKeep(keep), lock.WithObserver(seen.observe)), open(lock.WithKeep(keep))
		s.Every(fault.HangRequest, fault.Settle, fault.Renew, fault.Claim)
		s.Next(fault.Claim, nil)
		require.Equal(t, "answer", must.Run(t)(l.Once(t.Context(), key, print1, runs.run("answer"))))
		time.Sleep(3 * lease)
		require.ErrorIs(t, ask(t, l, print1), lock.ErrUnavailable)
		s.Every(nil, fault.Settle, fault.Renew, fault.Claim)
		require.ErrorIs(t, ask(t, other, print1), lock.ErrAbandoned)
		require.Equal(t, "answer", must.Replay(t)(l.Once(t.Context(), key, print1, runs.run("again"))))
		require.Zero(t, seen.count(lock.EventLost), "the work was over")

		s.Every(fault.HangRequest, fault.Settle, fault.Renew)
		must.Run(t)(l.Once(t.Context(), "other", print1, runs.run("lost")))
		time.Sleep(keep + 2*lease)
		require.Zero(t, l.Stats().Backlog, "the store has no entry any more")
	})
}

// A "no" to a settle says that the entry is not ours, whether or not earlier
// sends were applied: a settle finds its own receipt.
func TestANoAfterAnUnansweredSettleIsALoss(t *testing.T) {
	bubble(t, func(t *testing.T, s *fault.Store, open func(...lock.Option) *lock.Locker) {
		l, other := open(), open()
		freed := func(context.Context, func() error) error { // by an operator, and the request is lost
			s.Free(t, record)
			_, _, err := other.Once(context.WithoutCancel(t.Context()), key, print1, func(context.Context) ([]byte, error) {
				return []byte("theirs"), nil
			})
			assert.NoError(t, err)
			return io.EOF
		}
		receipt, replayed, err := l.Once(t.Context(), key, print1, func(context.Context) ([]byte, error) {
			s.Next(fault.Settle, freed)
			return []byte("mine"), nil
		})
		require.NoError(t, err)
		require.True(t, replayed)
		require.Equal(t, "theirs", string(receipt), "there is one answer only")

		e := acquired(t, l, key)
		s.Next(fault.Settle, func(context.Context, func() error) error { s.Free(t, key); return io.EOF })
		require.ErrorIs(t, e.Settle(t.Context(), nil, time.Hour), lock.ErrLost)

		e = acquired(t, l, key)
		time.Sleep(2 * lease)
		s.Next(fault.Settle, func(context.Context, func() error) error { s.Free(t, key); return io.EOF })
		require.ErrorIs(t, e.Settle(t.Context(), nil, lease), lock.ErrLost, "the receipt would still be there, however long the lease was held before")
		requireGrant(t, l)
	})
}

// Behind a settle that is not answered yet, another request under its key is a mismatch, at once. Behind a release it
// runs.
func TestAnotherRequestBehindAnUnansweredEnd(t *testing.T) {
	solo(t, func(t *testing.T, s *fault.Store, l *lock.Locker) {
		var f effect
		s.Every(fault.HangRequest, fault.Settle, fault.Release)
		must.Run(t)(l.Once(t.Context(), key, print1, f.run("answer")))
		began := time.Now()
		require.ErrorIs(t, ask(t, l, print2), lock.ErrMismatch)
		require.Zero(t, time.Since(began))

		_, _, err := l.Once(t.Context(), "another", print1, f.fail(errCard))
		require.ErrorIs(t, err, errCard)
		s.Every(nil, fault.Release)
		must.Run(t)(l.Once(t.Context(), "another", print2, f.run("other")))
	})
}

// once, same-answer: the settle in the background used the caller's memory, and so did the fingerprint of its
// record.
func TestReceiptAndFingerprintAreTheCallersMemory(t *testing.T) {
	solo(t, func(t *testing.T, s *fault.Store, l *lock.Locker) {
		var f effect
		s.Every(fault.HangRequest, fault.Settle)
		fingerprint := slices.Clone(print1)
		receipt, _, err := l.Once(t.Context(), key, fingerprint, f.run("answer"))
		require.NoError(t, err)
		copy(receipt, "######")
		copy(fingerprint, print2) // a consumer's buffer, used for the next message
		_, _, err = l.Once(t.Context(), key, print1, f.run("again"))
		require.NotErrorIs(t, err, lock.ErrMismatch)
		s.Every(nil, fault.Settle)
		time.Sleep(6 * time.Second)
		require.Equal(t, "answer", string(s.State(t, record).Receipt))
	}, lock.WithKeep(keep))
}

// A receipt that is kept for less than the budget.
func TestShortKeep(t *testing.T) {
	solo(t, func(t *testing.T, s *fault.Store, l *lock.Locker) {
		var f effect
		s.Next(fault.Settle, fault.HangReply)
		require.Equal(t, "answer", must.Run(t)(l.Once(t.Context(), key, print1, f.run("answer"))))
	}, lock.WithKeep(50*time.Millisecond))
}

// three outcomes: all sends of the release were refused, and none was unanswered. So a later
// "no" of the store is not the effect of an earlier send.
func TestRefusedSendsAreNotUnanswered(t *testing.T) {
	observed(t, func(t *testing.T, s *fault.Store, l *lock.Locker, seen *events) {
		e := acquired(t, l, key)
		s.Every(fault.Refuse, fault.Release)
		require.ErrorIs(t, e.Release(t.Context()), lock.ErrUnavailable)
		assert.Zero(t, seen.count(lock.EventUnknown), "nothing was unknown")
		s.Free(t, key)
		s.Every(nil, fault.Release)
		time.Sleep(time.Second)
		require.Zero(t, seen.count(lock.EventReleased))
		require.Zero(t, l.Stats().Backlog)
	})
}

// no-self-conflict: while the release of this process has no answer, even a caller for which the
// queue has no room is not refused as held.
func TestFullQueueBehindAnUnansweredRelease(t *testing.T) {
	solo(t, func(t *testing.T, s *fault.Store, l *lock.Locker) {
		e := acquired(t, l, key)
		s.Every(fault.HangRequest, fault.Release)
		require.Error(t, e.Release(t.Context()))
		for _, err := range meet(70, func(int) error { return l.Do(context.Background(), key, nothing) }) {
			require.NotErrorIs(t, err, lock.ErrHeld, "refused by its own unanswered release")
		}
	})
}

// A release without an answer keeps this process from the key no longer than the lease was valid,
// whether it was applied or not. Then other processes get the key, too.
func TestUnansweredReleaseEndsWithTheValidity(t *testing.T) {
	bubbleCase(t, "lock", func(t *testing.T, s *fault.Store, open func(...lock.Option) *lock.Locker) {
		l := open(lock.WithLease(30 * time.Second))
		s.Every(fault.HangRequest, fault.Release)
		e := acquired(t, l, key)
		require.Error(t, e.Release(t.Context()))
		time.Sleep(30 * time.Second)
		require.Equal(t, lock.Free, s.State(t, key).State)
		began := time.Now()
		e = acquired(t, l, key)
		assert.Zero(t, time.Since(began))
		s.Every(nil, fault.Release)
		require.NoError(t, e.Release(t.Context()))
	})
	bubbleCase(t, "failed run", func(t *testing.T, s *fault.Store, open func(...lock.Option) *lock.Locker) {
		var f effect
		l, other := open(lock.WithKeep(keep)), open(lock.WithKeep(keep))
		s.Every(fault.Refuse, fault.Release)
		_, _, err := l.Once(t.Context(), key, print1, f.fail(errors.New("mine")))
		require.ErrorContains(t, err, "mine")
		time.Sleep(10 * lease)
		require.ErrorIs(t, ask(t, other, print1), lock.ErrAbandoned)
		require.ErrorIs(t, ask(t, l, print1), lock.ErrUnavailable, "its own release is what is missing")
		s.Every(nil, fault.Release)
		must.Run(t)(l.Once(t.Context(), key, print1, f.run("again")))
	})
}

// no-self-conflict: a caller that waits for the unanswered release of its own process was refused as held if its wait
// ended at the moment at which the key became free.
func TestFreedInTheInstantTheWaitEnds(t *testing.T) {
	for range 50 {
		solo(t, func(t *testing.T, s *fault.Store, l *lock.Locker) {
			began := time.Now()
			e := acquired(t, l, key)
			s.Every(fault.HangRequest, fault.Release)
			require.ErrorIs(t, e.Release(t.Context()), lock.ErrUnavailable)
			time.Sleep(validity - budget - time.Since(began))
			require.ErrorIs(t, l.Do(t.Context(), key, nil), lock.ErrUnavailable, "no caller holds it")
		})
	}
}

// A caller needs a key whose release is being repeated without an answer. The release is then
// repeated once more, without the pause of a long outage.
func TestAReleaseThatIsAskedForIsRepeatedAtOnce(t *testing.T) {
	solo(t, func(t *testing.T, s *fault.Store, l *lock.Locker) {
		e := acquired(t, l, key)
		var came time.Time
		var mu sync.Mutex
		asked, began := make(chan struct{}), time.Now()
		s.Every(func(_ context.Context, apply func() error) error {
			mu.Lock()
			defer mu.Unlock()
			switch {
			case time.Since(began) < 20*time.Second: // until the pause is five
				return io.EOF
			case came.IsZero():
				came = time.Now()
				close(asked)
				return io.EOF
			case time.Since(came) < budget:
				return io.EOF
			}
			return apply()
		}, fault.Release)
		require.ErrorIs(t, e.Release(t.Context()), lock.ErrUnavailable)
		<-asked
		time.Sleep(budget / 2)
		requireGrant(t, l.With(lock.WithBudget(2*budget)))
	}, lock.WithLease(time.Minute))
}

// A release that follows a settle of unknown outcome would free the settled key.
func TestReleaseAfterSettleIsNoOp(t *testing.T) {
	solo(t, func(t *testing.T, s *fault.Store, l *lock.Locker) {
		e := acquired(t, l, key)
		s.Next(fault.Settle, fault.LoseRequest, fault.HangRequest, fault.HangRequest, fault.HangRequest)
		require.ErrorIs(t, e.Settle(t.Context(), nil, time.Hour), lock.ErrUnknown)
		require.NoError(t, e.Release(t.Context()))
		require.Zero(t, s.Count(fault.Release))
		time.Sleep(time.Second)
		require.Equal(t, lock.Settled, s.State(t, key).State)
		s.Free(t, key)
	})
}

func TestDoReleasesWhateverHappens(t *testing.T) {
	for of, do := range contenders {
		bubbleCase(t, of, func(t *testing.T, s *fault.Store, open func(...lock.Option) *lock.Locker) {
			l := open()
			require.PanicsWithValue(t, "work", func() { _ = do(context.Background(), l, func(context.Context) error { panic("work") }) })
			requireFree(t, s, key, setKeys[0])
			onItsOwn(func() { _ = do(context.Background(), l, func(context.Context) error { runtime.Goexit(); return nil }) })
			requireFree(t, s, key, setKeys[0])
			ctx, cancel := context.WithCancel(t.Context())
			require.ErrorIs(t, do(ctx, l, func(ctx context.Context) error { cancel(); return ctx.Err() }), context.Canceled)
			requireFree(t, s, key, setKeys[0])
		})
	}
}

func TestAReleasedLeaseIsNotLost(t *testing.T) {
	observed(t, func(t *testing.T, s *fault.Store, l *lock.Locker, seen *events) {
		e := acquired(t, l, key)
		ctx, began := e.Context(), time.Now()
		s.Every(fault.HangRequest, fault.Release)
		require.ErrorIs(t, e.Release(t.Context()), lock.ErrUnavailable)
		for time.Since(began) < 2*lease {
			_ = ctx.Err()
			require.NotErrorIs(t, context.Cause(ctx), lock.ErrLost)
			time.Sleep(time.Millisecond)
		}
		synctest.Wait()
		require.Zero(t, seen.count(lock.EventLost))
	})
}

// A caller that waits for the answer to a release does not wait for all that is due before it.
func TestAwaitedEndGoesBeforeDueTasks(t *testing.T) {
	const n = 2000
	bubbleOver(t, direct, func(t *testing.T, s *fault.Store, open func(...lock.Option) *lock.Locker) {
		l := open(lock.WithLease(time.Minute))
		leases := make([]*lock.Lease, n)
		for i := range leases {
			leases[i] = acquired(t, l, fmt.Sprint(i))
		}
		s.Every(fault.HangRequest, fault.Release)
		meet(n, func(i int) error { return leases[i].Release(t.Context()) })
		time.Sleep(10 * time.Second)
		s.Every(fault.Slow(20*time.Millisecond), fault.Release)
		for i := range 20 {
			e := acquired(t, l, fmt.Sprint(n-1-50*i))
			require.NoError(t, e.Release(t.Context()))
		}
		s.Every(nil)
	})
}

// A release that the clean-up completes is an event of the lease: it took from the grant on.
func TestEventOfALateRelease(t *testing.T) {
	observed(t, func(t *testing.T, s *fault.Store, l *lock.Locker, seen *events) {
		e := acquired(t, l, key)
		time.Sleep(lease / 2)
		s.Every(fault.HangRequest, fault.Release)
		require.ErrorIs(t, e.Release(t.Context()), lock.ErrUnavailable)
		s.Every(nil)
		time.Sleep(lease)
		synctest.Wait()
		require.GreaterOrEqual(t, seen.only(t, lock.EventReleased).Took, lease/2)
	})
}

// no-lockout: the claim was granted by its second send, and the first is still under way when the release gets
// no answer. The entry is there, so its removal waits for no send, and goes on when the server refuses this one.
func TestUnansweredReleaseBesideASendOfItsClaim(t *testing.T) {
	bubbleOver(t, apart, func(t *testing.T, s *fault.Store, open func(...lock.Option) *lock.Locker) {
		l := open()
		letGo := make(chan struct{})
		s.Next(fault.Claim, func(ctx context.Context, apply func() error) error {
			<-letGo
			return fault.Refuse(ctx, apply)
		})
		e := acquired(t, l, key)
		s.Every(fault.HangRequest, fault.Release)
		require.ErrorIs(t, e.Release(t.Context()), lock.ErrUnavailable)
		s.Every(nil)
		time.Sleep(2 * budget)
		require.Equal(t, lock.Free, s.State(t, key).State)
		close(letGo)
		synctest.Wait()
	})
}
