package lock_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/httplatch/httplatch/internal/testkit/faketx"
	"github.com/httplatch/httplatch/internal/testkit/must"
	"github.com/httplatch/httplatch/lock"
	"github.com/httplatch/httplatch/lock/internal/testkit/fault"
)

// A guard gets a run, or the entry that an earlier run has left, with the time that is left of it.
func TestBeginFindsTheEarlierReceipt(t *testing.T) {
	solo(t, func(t *testing.T, s *fault.Store, l *lock.Locker) {
		run, _, err := l.Begin(t.Context(), key, print1, &lock.Submission{Guard: "orders", Label: "42"})
		require.NoError(t, err)
		require.Equal(t, 1, lock.Attempt(run.Context()))
		require.Equal(t, "answer", must.Run(t)(run.Settle(t.Context(), []byte("answer"))))
		require.Error(t, run.Context().Err())
		time.Sleep(time.Minute)
		run, earlier, err := l.Begin(t.Context(), key, print1, &lock.Submission{AskLeft: true})
		require.NoError(t, err)
		require.Nil(t, run)
		require.Equal(t, "answer", string(earlier.Receipt))
		require.Equal(t, lock.Settled, earlier.State)
		require.Equal(t, key, earlier.Key)
		require.Equal(t, keep-time.Minute, earlier.Left.Round(time.Second))
		asked := s.Count(fault.Get)
		_, earlier, err = l.Begin(t.Context(), key, print1, nil)
		require.NoError(t, err)
		require.Equal(t, "answer", string(earlier.Receipt))
		require.Equal(t, asked, s.Count(fault.Get), "without AskLeft, the claim is the only call")
		_, _, err = l.Begin(t.Context(), key, []byte("another"), nil)
		require.ErrorIs(t, err, lock.ErrMismatch)
	}, lock.WithKeep(keep))
}

func TestARunEndsOnce(t *testing.T) {
	solo(t, func(t *testing.T, s *fault.Store, l *lock.Locker) {
		failed := begun(t, l, key)
		_, _, err := failed.Fail(t.Context(), errMine)
		require.ErrorIs(t, err, errMine)
		require.Equal(t, lock.Free, s.State(t, record).State)
		settled := begun(t, l, key)
		_, _, err = failed.Settle(t.Context(), []byte("late"))
		require.ErrorIs(t, err, lock.ErrLost)
		for _, receipt := range []string{"answer", "again"} {
			require.Equal(t, receipt, must.Run(t)(settled.Settle(t.Context(), []byte(receipt))))
		}
		must.Run(t)(settled.Fail(t.Context(), nil))
		_, err = settled.Ticket()
		require.Error(t, err)
		require.Equal(t, "answer", string(s.State(t, record).Receipt))
		require.Equal(t, 1, s.Count(fault.Settle))
		require.Equal(t, 1, s.Count(fault.Release))
	})
}

// A call that waits for a run gets the error of the run, or runs itself if there is none to share.
func TestAFailureIsShared(t *testing.T) {
	for name, shared := range map[string]error{"shared": errMine, "not shared": nil} {
		bubbleCase(t, name, func(t *testing.T, _ *fault.Store, open func(...lock.Option) *lock.Locker) {
			l := open(lock.WithWait(time.Minute))
			first, _, err := l.Begin(t.Context(), key, print1, nil)
			require.NoError(t, err)
			go func() {
				next, _, err := l.Begin(t.Context(), key, print1, nil)
				if shared == nil {
					if assert.NoError(t, err) {
						_, _, _ = next.Settle(t.Context(), nil)
					}
					return
				}
				var failed *lock.FailedRunError
				assert.ErrorAs(t, err, &failed)
				assert.Equal(t, shared, failed.Err)
				assert.NotErrorIs(t, err, shared, "it is the error of another call")
			}()
			synctest.Wait()
			_, _, err = first.Fail(t.Context(), shared)
			require.Equal(t, shared, err)
			synctest.Wait()
		})
	}
}

func TestACommitWithoutAnAnswerStaysUnknown(t *testing.T) {
	txBubble(t, func(t *testing.T, s *faketx.Store, open func(...lock.Option) *lock.Locker) {
		run := begun(t, open(), key)
		require.True(t, run.InTransaction())
		receipt, err := insert("mine")(run.Context())
		require.NoError(t, err)
		s.Next(faketx.Commit, faketx.LoseReply)
		s.Every(faketx.Outcome, faketx.Hang)
		for range 2 {
			_, _, err = run.Settle(t.Context(), receipt)
			require.ErrorIs(t, err, lock.ErrUnknown)
			require.NotErrorIs(t, err, lock.ErrLost)
		}
		s.Every(faketx.Outcome, nil)
	})
}

// The work of a guard runs unprotected, inside of a run that is protected. It has no attempt of its own,
// and its effects are effects of the run around it.
func TestAttemptOfUnprotectedWorkInsideOfARun(t *testing.T) {
	solo(t, func(t *testing.T, s *fault.Store, l *lock.Locker) {
		outer := begun(t, l, "outer")
		s.Every(fault.LoseRequest, fault.Claim)
		inner, _, err := l.With(lock.WithFailOpen()).Begin(outer.Context(), key, print1, nil)
		require.NoError(t, err)
		s.Every(nil, fault.Claim)
		require.Zero(t, lock.Attempt(inner.Context()))
		within, _, err := l.Begin(inner.Context(), "within", print1, nil)
		require.NoError(t, err)
		require.Equal(t, 1, lock.Attempt(within.Context()))
		require.NoError(t, lock.Commit(inner.Context()))
		require.True(t, outer.Committed())
		for _, run := range []*lock.Run{within, inner, outer} {
			must.Run(t)(run.Settle(t.Context(), nil))
		}
	})
}

// A run without a lease loses none, and it has no ticket, although another run has its key.
func TestARunWithoutALeaseHasNothingToKeep(t *testing.T) {
	bubble(t, func(t *testing.T, s *fault.Store, open func(...lock.Option) *lock.Locker) {
		var seen events
		l := open(lock.WithFailOpen(), lock.WithRerunAbandoned(), lock.WithObserver(seen.observe))
		s.Every(fault.LoseRequest, fault.Claim)
		run := begun(t, l, key)
		s.Every(nil, fault.Claim)
		other := begun(t, open(), key)
		none := must.Get(run.NotePossibleEffect(t.Context(), nil))(t)
		none()
		require.ErrorIs(t, run.Hold(t.Context(), nil), lock.ErrUnavailable)
		_, err := run.Ticket()
		require.ErrorIs(t, err, lock.ErrUnavailable)
		require.Zero(t, seen.count(lock.EventLost))
		for _, run := range []*lock.Run{run, other} {
			must.Run(t)(run.Settle(t.Context(), nil))
		}
	})
}

// Begin waits for a connection no longer than its caller waits, though the work would
// outlive that, and gives the claim back. It may notice the end of its caller late.
func TestBeginEndsWithItsCaller(t *testing.T) {
	for name, begin := range map[string]faketx.Fault{
		"at once": faketx.Hang,
		"late":    func(_ context.Context, apply func() error) error { time.Sleep(time.Second); return apply() },
	} {
		t.Run(name, func(t *testing.T) {
			txBubble(t, func(t *testing.T, s *faketx.Store, open func(...lock.Option) *lock.Locker) {
				l, other := open(lock.WithDetached()), open()
				s.Next(faketx.Begin, begin)
				ctx := within(t, 200*time.Millisecond)
				began := time.Now()
				_, _, err := l.Once(ctx, key, print1, mustNotRun)
				require.ErrorIs(t, err, context.DeadlineExceeded)
				require.True(t, name == "late" || time.Since(began) == 200*time.Millisecond)
				time.Sleep(time.Second)
				next(t, s, "", other, l)
			})
		})
	}
}

// A holder that was paused while its successor committed gets the successor's receipt,
// however its own run failed: the run has left nothing.
func TestPausedHolderGetsTheReceiptOfItsSuccessor(t *testing.T) {
	successor := func(t *testing.T, s *faketx.Store, l *lock.Locker, ends chan struct{}) {
		s.Every(faketx.Renew, faketx.LoseRequest)
		time.Sleep(2 * lease)
		s.Every(faketx.Renew, nil)
		go func() {
			_, _, _ = once(t, l, func(ctx context.Context) ([]byte, error) {
				<-ends
				return insert("successor's")(ctx)
			})
		}()
		synctest.Wait()
	}
	for name, pause := range map[string]func(s *faketx.Store, pause func()) func(ctx context.Context) ([]byte, error){
		"before BEGIN is answered": func(s *faketx.Store, pause func()) func(context.Context) ([]byte, error) {
			s.Next(faketx.Begin, func(context.Context, func() error) error { pause(); return errors.New("connection reset") })
			return mustNotRun
		},
		"in its work, which fails": func(_ *faketx.Store, pause func()) func(context.Context) ([]byte, error) {
			return func(ctx context.Context) ([]byte, error) { pause(); return nil, ctx.Err() }
		},
		"in its work, which goes on": func(_ *faketx.Store, pause func()) func(context.Context) ([]byte, error) {
			return func(ctx context.Context) ([]byte, error) { pause(); return insert("mine")(ctx) }
		},
		"in its work, and its snapshot is older": func(s *faketx.Store, pause func()) func(context.Context) ([]byte, error) {
			return func(ctx context.Context) ([]byte, error) {
				pause()
				s.Next(faketx.Commit, faketx.Conflict)
				return insert("mine")(ctx)
			}
		},
	} {
		for _, ended := range []bool{true, false} {
			t.Run(name, func(t *testing.T) {
				txBubble(t, func(t *testing.T, s *faketx.Store, open func(...lock.Option) *lock.Locker) {
					l, other := open(), open()
					ends := make(chan struct{})
					if ended {
						close(ends)
					}
					receipt, replayed, err := once(t, l, pause(s, func() { successor(t, s, other, ends) }))
					if ended {
						require.NoError(t, err)
						require.True(t, replayed)
						require.Equal(t, "successor's", receipt)
						return
					}
					require.Error(t, err)
					undone, ok := errors.AsType[*lock.TransactionError](err)
					require.True(t, ok && errors.Is(undone, lock.ErrLost) || !errors.Is(err, lock.ErrLost) || name == "in its work, which goes on", "%v", err)
					close(ends)
					synctest.Wait()
					next(t, s, "successor's", l, other)
				})
			})
		}
	}
}
