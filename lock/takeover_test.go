package lock_test

import (
	"context"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/httplatch/httplatch/internal/testkit/must"
	"github.com/httplatch/httplatch/lock"
	"github.com/httplatch/httplatch/lock/internal/testkit/fault"
)

// A takeover that lands after the record has ended leaves no entry: it would report an unknown outcome of an attempt
// that no caller made.
func TestATakeoverThatLandsAfterTheRecordIsNoFreshClaim(t *testing.T) {
	bubble(t, func(t *testing.T, s *fault.Store, open func(...lock.Option) *lock.Locker) {
		const window = 5 * time.Second
		var f effect
		opts := []lock.Option{lock.WithKeep(window), lock.WithRerunAbandoned()}
		abandoned(t, s, opts...)
		l, other := open(opts...), open(lock.WithKeep(window))
		s.Next(fault.Claim, nil, fault.Late(2*window)).Every(fault.HangRequest, fault.Claim)
		_, _, err := l.Once(t.Context(), key, print1, f.run("answer"))
		s.Every(nil, fault.Claim)
		require.ErrorIs(t, err, lock.ErrUnknown)
		time.Sleep(3 * window)
		require.Equal(t, lock.Free, s.State(t, record).State, "after the takeover has landed")
		must.Run(t)(other.Once(t.Context(), key, print1, func(ctx context.Context) ([]byte, error) {
			require.Equal(t, 1, lock.Attempt(ctx))
			return nil, nil
		}))
	})
}

// The entry that was to be taken over ends while the takeover is in flight: the key is claimed
// as a free one.
func TestTakeoverOfAnEndedEntryIsAFirstAttempt(t *testing.T) {
	bubble(t, func(t *testing.T, s *fault.Store, open func(...lock.Option) *lock.Locker) {
		var seen events
		opts := []lock.Option{lock.WithKeep(keep), lock.WithRerunAbandoned()}
		abandoned(t, s, opts...)
		l := open(append(opts, lock.WithObserver(seen.observe))...)
		s.Next(fault.Claim, nil, func(_ context.Context, apply func() error) error {
			s.Free(t, record) // an operator
			return apply()
		})
		must.Run(t)(l.Once(t.Context(), key, print1, func(ctx context.Context) ([]byte, error) {
			require.Equal(t, 1, lock.Attempt(ctx))
			return nil, nil
		}))
		require.Equal(t, 1, s.State(t, record).Attempt)
		require.Zero(t, seen.count(lock.EventTakenOver))
		require.Equal(t, 1, seen.count(lock.EventClaimed))
	})
}

func TestCommittedRunOfAProcessThatDiedIsNotRunAgain(t *testing.T) {
	solo(t, func(t *testing.T, s *fault.Store, l *lock.Locker) {
		crash(t, s, func(ctx context.Context) { assert.NoError(t, lock.Commit(ctx)) }, lock.WithRerunAbandoned())
		for range 3 {
			time.Sleep(keep / 4)
			require.ErrorIs(t, ask(t, l, print1), lock.ErrHeld)
		}
		s.Free(t, record)
	}, lock.WithKeep(keep), lock.WithRerunAbandoned())
}

// A first holder that comes back after a takeover gets the winner's receipt, or
// an error that says that it lost.
func TestLateSettleAfterTakeover(t *testing.T) {
	for name, settled := range map[string]bool{"settled": true, "still running": false} {
		bubbleCase(t, name, func(t *testing.T, s *fault.Store, open func(...lock.Option) *lock.Locker) {
			run := func(answer string) (finish func() (receipt []byte, replayed bool, err error)) {
				l, proceed, ended := open(lock.WithKeep(keep), lock.WithRerunAbandoned()), make(chan struct{}), make(chan struct{})
				var receipt []byte
				var replayed bool
				var err error
				go func() {
					defer close(ended)
					receipt, replayed, err = l.Once(context.Background(), key, print1, func(context.Context) ([]byte, error) {
						<-proceed
						return []byte(answer), nil
					})
				}()
				synctest.Wait()
				return func() ([]byte, bool, error) { close(proceed); <-ended; return receipt, replayed, err }
			}
			s.Every(fault.HangRequest, fault.Renew)
			first := run("first")
			time.Sleep(2 * lease)
			s.Every(nil, fault.Renew)
			second := run("second")
			if settled {
				must.Run(t)(second())
				require.Equal(t, "second", must.Replay(t)(first()))
				return
			}
			_, _, err := first()
			require.ErrorIs(t, err, lock.ErrLost)
			must.Run(t)(second())
		})
	}
}

// A takeover whose answers were lost is replaced by the next claim. It does not refuse
// this process, and the run has its attempt number, since no other run came between.
func TestLostTakeoverIsContinued(t *testing.T) {
	for name, tt := range map[string]struct {
		lost  fault.Func
		later time.Duration
	}{
		"applied, at once":               {fault.HangReply, 0},
		"applied, while it is held":      {fault.LoseReply, lease / 2},
		"applied, when it has lapsed":    {fault.HangReply, 2 * lease},
		"not applied":                    {fault.HangRequest, 0},
		"not applied, and a while later": {fault.LoseRequest, 2 * lease},
	} {
		bubbleCase(t, name, func(t *testing.T, s *fault.Store, open func(...lock.Option) *lock.Locker) {
			var f effect
			opts := []lock.Option{lock.WithKeep(time.Hour), lock.WithRerunAbandoned()}
			abandoned(t, s, opts...)
			l, other := open(opts...), open(opts...)
			s.Next(fault.Claim, nil).Every(tt.lost, fault.Claim) // the first claim finds the abandoned entry
			require.ErrorIs(t, ask(t, l, print1), lock.ErrUnknown)
			s.Every(nil, fault.Claim)
			time.Sleep(tt.later)

			_, _, err := l.Once(t.Context(), key, []byte("another"), f.run("never"))
			require.ErrorIs(t, err, lock.ErrMismatch)
			require.Equal(t, "answer", must.Run(t)(l.Once(t.Context(), key, print1, func(ctx context.Context) ([]byte, error) {
				require.Equal(t, 2, lock.Attempt(ctx))
				require.ErrorIs(t, ask(t, other, print1), lock.ErrHeld)
				time.Sleep(2 * lease) // it is renewed like any other
				return []byte("answer"), nil
			})))
			require.Equal(t, 2, s.State(t, record).Attempt)
			require.Zero(t, f.runs.Load())
			s.Free(t, record)
		})
	}
}

// Over a store that does not know ReplacesHeld, the key is held until the lease of the takeover is over.
func TestLostTakeoverThatIsNotReplaced(t *testing.T) {
	bubbleOver(t, func(s *fault.Store) lock.Store { return unaware{s} }, func(t *testing.T, s *fault.Store, open func(...lock.Option) *lock.Locker) {
		var f effect
		opts := []lock.Option{lock.WithKeep(time.Hour), lock.WithRerunAbandoned()}
		abandoned(t, s, opts...)
		l := open(opts...)
		s.Next(fault.Claim, nil, fault.HangReply, fault.HangReply)
		require.ErrorIs(t, ask(t, l, print1), lock.ErrUnknown)
		require.ErrorIs(t, ask(t, l, print1), lock.ErrHeld)
		must.Run(t)(l.With(lock.WithWait(2*lease)).Once(t.Context(), key, print1, f.run("answer")))
	})
}

// unaware does not know ReplacesHeld.
type unaware struct{ lock.Store }

func (u unaware) Claim(ctx context.Context, key string, c lock.Claim) (lock.Entry, error) {
	c.ReplacesHeld = false
	return u.Store.Claim(ctx, key, c)
}

// The answer to the claim that replaces the takeover can be lost as well, and
// another process can have taken over meanwhile.
func TestALostTakeoverThatIsTakenOver(t *testing.T) {
	bubble(t, func(t *testing.T, s *fault.Store, open func(...lock.Option) *lock.Locker) {
		var f effect
		opts := []lock.Option{lock.WithKeep(time.Hour), lock.WithRerunAbandoned()}
		abandoned(t, s, opts...)
		l, other := open(opts...), open(opts...)
		s.Next(fault.Claim, nil).Every(fault.HangReply, fault.Claim)
		require.ErrorIs(t, ask(t, l, print1), lock.ErrUnknown)
		s.Every(nil, fault.Claim)
		s.Next(fault.Claim, nil, fault.HangReply, fault.HangReply)
		require.ErrorIs(t, ask(t, l, print1), lock.ErrUnknown)
		time.Sleep(lease)
		must.Run(t)(other.Once(t.Context(), key, print1, func(ctx context.Context) ([]byte, error) {
			require.Equal(t, 3, lock.Attempt(ctx))
			require.ErrorIs(t, ask(t, l, print1), lock.ErrHeld)
			return []byte("theirs"), nil
		}))
		require.Equal(t, "theirs", must.Replay(t)(l.Once(t.Context(), key, print1, f.run("never"))))
		require.Zero(t, f.runs.Load())
		s.Free(t, record)
	})
}

// A Locker replaces its takeover without an answer. If that claim fails, too, the next call of this process is
// not refused because of it.
func TestFaultsOfGoingOnWithALostTakeover(t *testing.T) {
	for name, f := range map[string][]fault.Func{
		"claim lost all":  slices.Repeat([]fault.Func{fault.LoseReply}, 8),
		"claim hangs":     {fault.HangReply, fault.HangReply},
		"claim req hangs": {fault.HangRequest, fault.HangRequest},
		"claim refused":   slices.Repeat([]fault.Func{fault.Refuse}, 8),
		"claim late":      {fault.Late(lease / 2), fault.Late(lease)},
		"claim panics":    {func(_ context.Context, apply func() error) error { _ = apply(); panic("a hook's") }},
		"claim denied":    {denied},
		"entry gone":      {func(context.Context, func() error) error { return nil }},
	} {
		bubbleCase(t, name, func(t *testing.T, s *fault.Store, open func(...lock.Option) *lock.Locker) {
			var f1 effect
			opts := []lock.Option{lock.WithKeep(10 * time.Second), lock.WithRerunAbandoned()}
			abandoned(t, s, opts...)
			l := open(opts...)
			s.Next(fault.Claim, nil, fault.HangReply, fault.HangReply)
			require.ErrorIs(t, ask(t, l, print1), lock.ErrUnknown)
			s.Next(fault.Claim, append([]fault.Func{nil}, f...)...)
			_, _, err := l.With(lock.WithLease(2*lease), lock.WithBudget(budget/2)).Once(t.Context(), key, print1, f1.run("b"))
			s.Skip(fault.Claim)
			if err == nil {
				return
			}
			must.Run(t)(l.Once(t.Context(), key, print1, func(ctx context.Context) ([]byte, error) {
				require.Equal(t, 2, lock.Attempt(ctx))
				return []byte("c"), nil
			}))
			time.Sleep(time.Minute)
			require.Zero(t, l.Stats().Backlog)
			require.Zero(t, l.Stats().Active)
		})
	}
}

// no-self-conflict: the claim that replaces a lost takeover is applied, and has no answer. Its Locker remembers the
// token for as long as the entry can last.
func TestALostReplacementIsRemembered(t *testing.T) {
	bubbleOver(t, direct, func(t *testing.T, s *fault.Store, open func(...lock.Option) *lock.Locker) {
		var f1 effect
		s.Lag = 0
		opts := []lock.Option{lock.WithKeep(10 * time.Second), lock.WithRerunAbandoned()}
		abandoned(t, s, opts...)
		l := open(opts...)
		s.Next(fault.Claim, nil, fault.HangReply, fault.HangReply)
		_, _, err := l.Once(t.Context(), key, print1, f1.run("a"))
		require.ErrorIs(t, err, lock.ErrUnknown)
		for range 12 {
			time.Sleep(2 * time.Second)
			s.Every(fault.HangRequest, fault.Claim)
			_, err := l.Acquire(t.Context(), "another") // so that old ones are forgotten
			require.Error(t, err)
			s.Every(nil, fault.Claim)
			s.Next(fault.Claim, nil, fault.HangReply, fault.HangReply)
			require.ErrorIs(t, ask(t, l, print1), lock.ErrUnknown)
		}
		must.Run(t)(l.Once(t.Context(), key, print1, f1.run("b")))
		s.Free(t, record)
	})
}
