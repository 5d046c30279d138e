package lock_test

import (
	"context"
	"errors"
	"runtime"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/httplatch/httplatch/internal/early"
	"github.com/httplatch/httplatch/internal/failopen"
	"github.com/httplatch/httplatch/lock"
)

// once: the claim of a run that succeeded had an unanswered send; when its
// settle is given up, the sweep of the claim deletes what says that it ran.
func TestRegressionSweepForgetsASucceededRun(t *testing.T) {
	for name, first := range map[string]fault{"all answered": nil, "claim's first reply lost": loseReply} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, s *scripted, open func(...lock.Option) *lock.Locker) {
				const window = 30 * time.Second // as of Dedupe
				var f effect
				l, other := open(lock.WithKeep(window)), open(lock.WithKeep(window))
				if first != nil {
					s.next(claim, first)
				}
				s.every(refuse, settle)
				_, _, err := l.Once(t.Context(), key, print1, f.run("answer"))
				require.NoError(t, err)
				time.Sleep(time.Minute + 10*time.Second) // maxHold, and some of linger
				require.Equal(t, lock.Abandoned, s.state(t, record).State, "linger runs for %v from the last renewal", window)
				_, _, err = other.Once(t.Context(), key, print1, f.run("again"))
				require.ErrorIs(t, err, lock.ErrAbandoned)
				require.EqualValues(t, 1, f.runs.Load())
				s.every(nil, settle)
				time.Sleep(5 * time.Second)
				require.Equal(t, lock.Settled, s.state(t, record).State, "the background goes on until lease + linger is over")
			})
		})
	}
}

// no-orphan, no-self-conflict: MaxLag counts from the return of a call; the
// sweep counts it from when the Locker gave the call up.
func TestRegressionLagCountsFromTheReturnOfTheCall(t *testing.T) {
	bubble(t, func(t *testing.T, s *scripted, open func(...lock.Option) *lock.Locker) {
		l := open()
		s.every(func(_ context.Context, apply func() error) error {
			time.Sleep(10 * time.Second) // the client library's own time-out
			time.AfterFunc(s.lag-500*time.Millisecond, func() { _ = apply() })
			return errEOF
		}, claim)
		_, err := l.Acquire(t.Context(), key)
		require.ErrorIs(t, err, lock.ErrUnknown)
		s.every(nil, claim)
		time.Sleep(10*time.Second + s.lag - 400*time.Millisecond)
		e, err := l.Acquire(t.Context(), key)
		require.NoError(t, err, "refused by its own dead claim")
		require.NoError(t, e.Release(t.Context()))
	})
}

// notified, events: a renewal that meets the lease's own receipt is not a loss.
func TestRegressionRenewalMeetsOwnReceipt(t *testing.T) {
	for name, f := range map[string]fault{"reply lost": hangReply, "reply slow": slow(budget - 50*time.Millisecond)} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, s *scripted, open func(...lock.Option) *lock.Locker) {
				var seen events
				l := open(lock.WithKeep(keep), lock.WithObserver(seen.observe))
				s.every(f, settle)
				_, _, err := l.Once(t.Context(), key, print1, func(context.Context) ([]byte, error) {
					time.Sleep(lease/3 - 100*time.Millisecond)
					return []byte("answer"), nil
				})
				require.NoError(t, err)
				time.Sleep(lease)
				s.every(nil, settle)
				time.Sleep(10 * time.Second)
				require.Equal(t, 1, seen.count(lock.EventSettled))
				require.Zero(t, seen.count(lock.EventLost), "it was settled, by us")
			})
		})
	}
}

// same-answer: a claim that is only pending says nothing of whose key it is.
func TestRegressionMismatchByAPendingClaim(t *testing.T) {
	bubble(t, func(t *testing.T, s *scripted, open func(...lock.Option) *lock.Locker) {
		var f effect
		l := open(lock.WithKeep(keep))
		_, _, err := l.Once(t.Context(), key, print1, f.run("answer"))
		require.NoError(t, err)
		s.every(slow(50*time.Millisecond), claim)
		wrong := make(chan error, 1)
		go func() { _, _, err := l.Once(context.Background(), key, print2, f.run("wrong")); wrong <- err }()
		synctest.Wait()
		_, _, err = l.Once(t.Context(), key, print1, f.run("again")) // the owner of the key
		require.ErrorIs(t, <-wrong, lock.ErrMismatch)
		require.NotErrorIs(t, err, lock.ErrMismatch, "422 for the request whose receipt is there")
	})
}

// no-self-conflict: the run failed, so the key is free for any request as soon
// as its release is answered; a request behind it has to ask for that.
func TestRegressionMismatchByAnEndingRelease(t *testing.T) {
	bubble(t, func(t *testing.T, s *scripted, open func(...lock.Option) *lock.Locker) {
		var f effect
		l := open(lock.WithKeep(keep))
		s.every(hangRequest, release)
		_, _, err := l.Once(t.Context(), key, print1, f.fail(errors.New("mine")))
		require.ErrorContains(t, err, "mine")
		time.Sleep(20 * time.Second)
		s.every(nil, release)
		_, _, err = l.Once(t.Context(), key, print2, f.run("ok"))
		require.NotErrorIs(t, err, lock.ErrMismatch)
		require.NoError(t, err)
	})
}

// once: Commit says "nothing frees the key any more" after it was freed. An
// http.TimeoutHandler inside Idempotent does this: its handler runs on.
func TestRegressionCommitAfterTheRelease(t *testing.T) {
	bubble(t, func(t *testing.T, s *scripted, open func(...lock.Option) *lock.Locker) {
		for _, l := range []*lock.Locker{open(lock.WithKeep(keep)), open(lock.WithKeep(keep), lock.WithRerunAbandoned())} {
			var left context.Context
			_, _, err := l.Once(t.Context(), key, print1, func(ctx context.Context) ([]byte, error) {
				left = context.WithoutCancel(ctx)
				return nil, errors.New("503: it took too long")
			})
			require.Error(t, err)
			require.Equal(t, lock.Free, s.state(t, record).State)
			require.ErrorIs(t, lock.Commit(left), lock.ErrLost)
			require.Error(t, early.From(left).SettleEarly(left, []byte("tombstone")), "nothing was recorded")
		}
	})
}

// once: as above, with the commit while the release is on its way.
func TestRegressionCommitDuringTheRelease(t *testing.T) {
	bubble(t, func(t *testing.T, s *scripted, open func(...lock.Option) *lock.Locker) {
		l := open(lock.WithKeep(keep))
		s.every(slow(100*time.Millisecond), release)
		committed := make(chan error, 1)
		_, _, _ = l.Once(t.Context(), key, print1, func(ctx context.Context) ([]byte, error) {
			time.AfterFunc(50*time.Millisecond, func() { committed <- lock.Commit(ctx) })
			return nil, errors.New("503: it took too long")
		})
		if <-committed == nil {
			require.NotEqual(t, lock.Free, s.state(t, record).State, "Commit returned nil and the key was freed")
		}
	})
}

// same-answer: what is settled in the background is the caller's memory.
func TestRegressionReceiptIsTheCallersMemory(t *testing.T) {
	bubble(t, func(t *testing.T, s *scripted, open func(...lock.Option) *lock.Locker) {
		var f effect
		l := open(lock.WithKeep(keep))
		s.every(hangRequest, settle)
		receipt, _, err := l.Once(t.Context(), key, print1, f.run("answer"))
		require.NoError(t, err)
		copy(receipt, "######") // it was returned: it is the caller's
		s.every(nil, settle)
		time.Sleep(6 * time.Second)
		require.Equal(t, "answer", string(s.state(t, record).Receipt))
	})
}

// once, same-answer: the fingerprint of a running record is the caller's memory.
func TestRegressionFingerprintIsTheCallersMemory(t *testing.T) {
	bubble(t, func(t *testing.T, s *scripted, open func(...lock.Option) *lock.Locker) {
		var f effect
		l := open(lock.WithKeep(keep))
		s.every(hangRequest, settle)
		buf := append([]byte(nil), print1...)
		_, _, err := l.Once(t.Context(), key, buf, f.run("answer"))
		require.NoError(t, err)
		copy(buf, print2) // a consumer's buffer, used for the next message
		_, _, err = l.Once(t.Context(), key, print1, f.run("again"))
		s.every(nil, settle)
		time.Sleep(6 * time.Second)
		require.NotErrorIs(t, err, lock.ErrMismatch)
	})
}

// Close drains background settles: it has to hurry them, not to wait for their
// back-off with nothing but its deadline.
func TestRegressionCloseHurriesSettles(t *testing.T) {
	bubble(t, func(t *testing.T, s *scripted, open func(...lock.Option) *lock.Locker) {
		var f effect
		l := open(lock.WithKeep(keep))
		s.every(hangRequest, settle)
		_, _, err := l.Once(t.Context(), key, print1, f.run("answer"))
		require.NoError(t, err)
		time.Sleep(21 * time.Second)
		s.every(nil, settle)
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
		defer cancel()
		began := time.Now()
		err = l.Close(ctx)
		t.Logf("Close took %v: %v", time.Since(began), err)
		require.Equal(t, lock.Settled, s.state(t, record).State, "the store was there all the time")
		require.NoError(t, err)
		require.Less(t, time.Since(began), time.Second)
	})
}

// fail-open: two duplicates of one process run beside each other if they met
// behind an end that is unanswered.
func TestRegressionFailOpenBehindAnEndingLease(t *testing.T) {
	bubble(t, func(t *testing.T, s *scripted, open func(...lock.Option) *lock.Locker) {
		l := open(lock.WithLease(30 * time.Second))
		e, err := l.Acquire(t.Context(), key)
		require.NoError(t, err)
		s.every(hangRequest, claim, renew, release)
		require.Error(t, e.Release(t.Context()))
		var mu sync.Mutex
		running, most := 0, 0
		var wg sync.WaitGroup
		for range 2 {
			wg.Go(func() { // what middleware.Lock does with WithFailOpen
				var hold failopen.Hold
				e, err := l.Acquire(failopen.With(context.Background(), &hold), key)
				if hold.End != nil {
					defer hold.End()
				}
				if err == nil {
					_ = e.Release(context.Background())
					return
				}
				if !errors.Is(err, lock.ErrUnavailable) {
					return
				}
				mu.Lock()
				running++
				most = max(most, running)
				mu.Unlock()
				time.Sleep(time.Second)
				mu.Lock()
				running--
				mu.Unlock()
			})
		}
		wg.Wait()
		require.LessOrEqual(t, most, 1, "duplicates of one process ran beside each other")
		s.every(nil, claim, renew, release)
	})
}

// fail-open: a caller that left is no outage.
func TestRegressionFailOpenForACallerThatLeft(t *testing.T) {
	bubbleOver(t, apart, func(t *testing.T, s *scripted, open func(...lock.Option) *lock.Locker) {
		var seen events
		l := open(lock.WithObserver(seen.observe))
		s.every(slow(100*time.Millisecond), claim)
		ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
		defer cancel()
		var hold failopen.Hold
		_, err := l.Acquire(failopen.With(ctx, &hold), key)
		require.Error(t, err)
		if hold.End != nil {
			defer hold.End()
		}
		require.Zero(t, seen.count(lock.EventBypassed))
	})
}

// attack C6: a takeover that was released, or whose claim was swept, makes the
// unknown outcome of the first attempt forgotten.
func TestRegressionC6AttemptIsForgotten(t *testing.T) {
	for name, lost := range map[string]bool{"takeover failed": false, "takeover's claim unknown": true} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, s *scripted, open func(...lock.Option) *lock.Locker) {
				var f effect
				l := open(lock.WithKeep(keep), lock.WithRerunAbandoned())
				careful := open(lock.WithKeep(keep))
				crash(t, s, func(context.Context) { f.runs.Add(1) }, lock.WithRerunAbandoned())
				time.Sleep(lease)
				if lost {
					s.next(claim, nil)
					for range 8 {
						s.next(claim, hangReply)
					}
				}
				_, _, err := l.Once(t.Context(), key, print1, func(ctx context.Context) ([]byte, error) {
					require.Equal(t, 2, lock.Attempt(ctx))
					return nil, errors.New("mine")
				})
				require.Error(t, err)
				s.mu.Lock()
				s.faults[claim] = nil
				s.mu.Unlock()
				time.Sleep(2 * lease)
				_, _, err = careful.Once(t.Context(), key, print1, f.run("again"))
				require.ErrorIs(t, err, lock.ErrAbandoned, "a caller that refuses the abandoned runs it")
				_, _, err = l.Once(t.Context(), key, print1, func(ctx context.Context) ([]byte, error) {
					require.Greater(t, lock.Attempt(ctx), 1)
					return nil, nil
				})
				require.NoError(t, err)
			})
		})
	}
}

// three outcomes: no send of the release was unanswered, all were refused. The
// "no" then is a loss.
func TestRegressionRefusedSendsAreNotUnanswered(t *testing.T) {
	bubble(t, func(t *testing.T, s *scripted, open func(...lock.Option) *lock.Locker) {
		var seen events
		l := open(lock.WithObserver(seen.observe))
		e, err := l.Acquire(t.Context(), key)
		require.NoError(t, err)
		s.every(refuse, release)
		require.ErrorIs(t, e.Release(t.Context()), lock.ErrUnavailable)
		assert.Zero(t, seen.count(lock.EventUnknown), "nothing was unknown")
		s.forget(t, key)
		s.every(nil, release)
		time.Sleep(time.Second)
		require.Zero(t, seen.count(lock.EventReleased))
		require.Equal(t, 1, seen.count(lock.EventLost))
	})
}

// A receipt that is kept for less than the budget.
func TestRegressionShortKeep(t *testing.T) {
	bubble(t, func(t *testing.T, s *scripted, open func(...lock.Option) *lock.Locker) {
		var f effect
		l := open(lock.WithKeep(50 * time.Millisecond))
		s.next(settle, hangReply)
		receipt, _, err := l.Once(t.Context(), key, print1, f.run("answer"))
		require.NoError(t, err)
		require.Equal(t, "answer", string(receipt))
	})
}

// A renewal timer that fires in the moment of the release goes on renewing what
// is being released.
func TestRegressionRenewalOfAReleasedLease(t *testing.T) {
	for range 300 {
		bubble(t, func(t *testing.T, s *scripted, open func(...lock.Option) *lock.Locker) {
			l := open()
			s.every(hangRequest, release)
			e, err := l.Acquire(t.Context(), key)
			require.NoError(t, err)
			time.Sleep(lease / 3)
			_ = e.Release(t.Context())
			sent := s.count(renew)
			time.Sleep(2 * lease)
			require.LessOrEqual(t, s.count(renew), sent, "renewed after the release")
		})
		if t.Failed() {
			return
		}
	}
}

// The 65th that meets an unanswered end of this process's own is not "held".
func TestRegressionFullQueueBehindAnEndingLease(t *testing.T) {
	bubble(t, func(t *testing.T, s *scripted, open func(...lock.Option) *lock.Locker) {
		l := open()
		e, err := l.Acquire(t.Context(), key)
		require.NoError(t, err)
		s.every(hangRequest, release)
		require.Error(t, e.Release(t.Context()))
		var wg sync.WaitGroup
		for range 70 {
			wg.Go(func() {
				if _, err := l.Acquire(context.Background(), key); errors.Is(err, lock.ErrHeld) {
					t.Error("refused by its own unanswered release")
				}
			})
		}
		wg.Wait()
	})
}

// events: an Extend that is overtaken by the Release of the same lease is no loss.
func TestRegressionExtendOvertakenByRelease(t *testing.T) {
	bubble(t, func(t *testing.T, s *scripted, open func(...lock.Option) *lock.Locker) {
		var seen events
		l := open(lock.WithObserver(seen.observe))
		e, err := l.Acquire(t.Context(), key)
		require.NoError(t, err)
		s.next(renew, func(_ context.Context, apply func() error) error { time.Sleep(50 * time.Millisecond); return apply() })
		s.next(release, slow(80*time.Millisecond))
		extended := make(chan error, 1)
		go func() { extended <- e.Extend(context.Background()) }()
		synctest.Wait()
		require.NoError(t, e.Release(t.Context()))
		<-extended
		require.Equal(t, 1, seen.count(lock.EventReleased))
		require.Zero(t, seen.count(lock.EventLost))
	})
}

// The gate opens at the end of validity, whatever became of the release
// (DESIGN 6, attack B5): other processes go on by then.
func TestRegressionGateOpensAtTheEndOfValidity(t *testing.T) {
	t.Run("lock", func(t *testing.T) {
		bubble(t, func(t *testing.T, s *scripted, open func(...lock.Option) *lock.Locker) {
			l, other := open(lock.WithLease(30*time.Second)), open()
			s.every(hangRequest, release)
			e, err := l.Acquire(t.Context(), key)
			require.NoError(t, err)
			require.Error(t, e.Release(t.Context()))
			time.Sleep(30 * time.Second)
			require.Equal(t, lock.Free, s.state(t, key).State)
			began := time.Now()
			e, err = l.Acquire(t.Context(), key)
			require.NoError(t, err, "a free key")
			assert.Zero(t, time.Since(began))
			s.every(nil, release)
			require.NoError(t, e.Release(t.Context()))
			_ = other
		})
	})
	t.Run("failed run", func(t *testing.T) {
		bubble(t, func(t *testing.T, s *scripted, open func(...lock.Option) *lock.Locker) {
			var f effect
			l, other := open(lock.WithKeep(keep)), open(lock.WithKeep(keep))
			s.every(refuse, release)
			_, _, err := l.Once(t.Context(), key, print1, f.fail(errors.New("mine")))
			require.ErrorContains(t, err, "mine")
			time.Sleep(10 * lease)
			_, _, err = other.Once(t.Context(), key, print1, f.run("again"))
			require.ErrorIs(t, err, lock.ErrAbandoned)
			_, _, err = l.Once(t.Context(), key, print1, f.run("again"))
			require.ErrorIs(t, err, lock.ErrUnavailable, "its own release is what is missing")
			s.every(nil, release)
			_, _, err = l.Once(t.Context(), key, print1, f.run("again"))
			require.NoError(t, err)
		})
	})
}

// events: a key that was free when it was granted was not taken over.
func TestRegressionStaleReplaces(t *testing.T) {
	bubble(t, func(t *testing.T, s *scripted, open func(...lock.Option) *lock.Locker) {
		var seen events
		a := open(lock.WithKeep(keep), lock.WithRerunAbandoned())
		b := open(lock.WithKeep(keep), lock.WithRerunAbandoned(), lock.WithWait(time.Minute), lock.WithObserver(seen.observe))
		crash(t, s, func(context.Context) {}, lock.WithRerunAbandoned())
		time.Sleep(lease)
		done := make(chan error, 1)
		inside, leave := make(chan struct{}), make(chan struct{})
		s.every(func(_ context.Context, apply func() error) error {
			err := apply()
			time.Sleep(time.Millisecond)
			return err
		}, claim)
		go func() {
			_, _, err := b.Once(context.Background(), key, print1, func(context.Context) ([]byte, error) { return nil, nil })
			done <- err
		}()
		synctest.Wait() // b has seen the abandoned entry, its answer is on its way
		s.every(nil, claim)
		go func() {
			_, _, _ = a.Once(context.Background(), key, print1, func(context.Context) ([]byte, error) {
				close(inside)
				<-leave
				return nil, errors.New("mine")
			})
		}()
		<-inside
		time.Sleep(time.Second)
		s.forget(t, record) // an operator
		close(leave)
		require.NoError(t, <-done)
		require.Zero(t, seen.count(lock.EventTakenOver), "the key was free")
	})
}

// no-leak: an observer that ends its goroutine (require in a test's observer)
// leaves the lease without a holder.
func TestRegressionGoexitInAnObserver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newScripted()
		l := lock.New(s, lock.WithLogger(quiet), lock.WithObserver(func(_ context.Context, e lock.Event) {
			if e.Kind == lock.EventClaimed {
				runtime.Goexit()
			}
		}))
		var wg sync.WaitGroup
		wg.Go(func() { _ = l.Do(context.Background(), key, func(context.Context) error { return nil }) })
		wg.Wait()
		assert.Equal(t, lock.Free, s.state(t, key).State)
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		assert.NoError(t, l.Close(ctx))
	})
}

// no-orphan: a sweep counted an answer from before its claim had landed. The
// server stalled after that, had the claim and the last delete in one batch, and
// took the delete first.
func TestRegressionStalledServerBetweenTwoDeletes(t *testing.T) {
	bubble(t, func(t *testing.T, s *scripted, open func(...lock.Option) *lock.Locker) {
		l := open(lock.WithLease(10*time.Minute), lock.WithMaxHold(20*time.Minute))
		var mu sync.Mutex
		var late func() error
		var returned time.Time
		s.every(func(ctx context.Context, apply func() error) error {
			<-ctx.Done()
			mu.Lock()
			defer mu.Unlock()
			late, returned = apply, time.Now()
			return ctx.Err()
		}, claim)
		s.every(func(_ context.Context, apply func() error) error {
			err := apply()
			mu.Lock()
			defer mu.Unlock()
			// The claim has landed by now, and waits for the server like this delete.
			if late != nil && time.Since(returned) >= s.lag {
				_ = late()
				late = nil
			}
			return err
		}, release)
		_, err := l.Acquire(t.Context(), key)
		require.ErrorIs(t, err, lock.ErrUnknown)
		time.Sleep(time.Minute)
		mu.Lock()
		defer mu.Unlock()
		require.Nil(t, late, "it was applied")
		require.Equal(t, lock.Free, s.state(t, key).State)
	})
}

// no-self-conflict: a claim was refused by an own dead one, whose sweep ended,
// and forgot the token, before the answer was read.
func TestRegressionRefusedByWhatIsSweptMeanwhile(t *testing.T) {
	for offset := time.Duration(0); offset < 2*time.Second; offset += 100 * time.Millisecond {
		bubble(t, func(t *testing.T, s *scripted, open func(...lock.Option) *lock.Locker) {
			l := open(lock.WithLease(10*time.Minute), lock.WithMaxHold(20*time.Minute), lock.WithBudget(2*time.Second))
			s.every(late(2*time.Second+s.lag-time.Millisecond), claim) // as late as it may be
			_, err := l.Acquire(t.Context(), key)
			require.ErrorIs(t, err, lock.ErrUnknown)
			time.Sleep(s.lag + offset)
			s.every(slow(1200*time.Millisecond), claim)
			e, err := l.Acquire(t.Context(), key)
			require.NotErrorIs(t, err, lock.ErrHeld)
			require.NoError(t, e.Release(t.Context()))
		})
	}
}

// A claim that is made again, because an own dead claim was in its way, wrote
// to what the sweep of the claim before was telling observers. (Only the race
// detector sees it.)
func TestRegressionSweepReadsNothingOfTheNextClaim(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var tokens []string
		s := &answering{claims: []func(lock.Claim) (lock.Entry, error){
			func(c lock.Claim) (lock.Entry, error) { // becomes the dead claim
				tokens = append(tokens, c.Token)
				return lock.Entry{}, errEOF
			},
		}}
		var seen events
		l := lock.New(s, lock.WithLogger(quiet), lock.WithLease(lease), lock.WithBudget(budget), lock.WithObserver(seen.observe))
		ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
		defer cancel()
		_, err := l.Acquire(ctx, key)
		require.ErrorIs(t, err, lock.ErrUnknown)
		s.claims = []func(lock.Claim) (lock.Entry, error){
			func(lock.Claim) (lock.Entry, error) { return lock.Entry{}, errEOF },
			func(lock.Claim) (lock.Entry, error) { return lock.Entry{State: lock.Held, Token: tokens[0]}, nil },
			func(lock.Claim) (lock.Entry, error) {
				time.Sleep(20 * time.Millisecond) // the sweep of the round before is through
				return lock.Entry{State: lock.Held, Token: "another"}, nil
			},
		}
		_, err = l.Acquire(t.Context(), key)
		require.ErrorIs(t, err, lock.ErrHeld)
		require.NoError(t, l.Close(t.Context()))
		require.GreaterOrEqual(t, seen.count(lock.EventReaped), 2)
	})
}

// answering is a store that answers claims one after the other as configured,
// and finds whatever it is to release.
type answering struct {
	lock.Store
	claims []func(lock.Claim) (lock.Entry, error)
}

func (s *answering) Claim(_ context.Context, _ string, c lock.Claim) (lock.Entry, error) {
	answer := s.claims[0]
	s.claims = s.claims[1:]
	return answer(c)
}

func (s *answering) Release(context.Context, string, string) (bool, error) {
	time.Sleep(5 * time.Millisecond)
	return true, nil
}

func (s *answering) MaxLag() time.Duration { return time.Second }

// no-self-conflict: a caller that waits for the unanswered release of its own process
// was refused, as if another caller held the key, if the wait was over in the instant
// in which the key became free.
func TestRegressionFreedInTheInstantTheWaitEnds(t *testing.T) {
	for range 50 {
		bubble(t, func(t *testing.T, s *scripted, open func(...lock.Option) *lock.Locker) {
			l := open()
			began := time.Now()
			e, err := l.Acquire(t.Context(), key)
			require.NoError(t, err)
			s.every(hangRequest, release)
			require.ErrorIs(t, e.Release(t.Context()), lock.ErrUnavailable)
			validity := lease - lease/100 - 2*time.Millisecond // the gate opens when it is over
			time.Sleep(validity - budget - time.Since(began))
			_, err = l.Acquire(t.Context(), key)
			require.ErrorIs(t, err, lock.ErrUnavailable, "nobody holds it")
		})
	}
}
