package lock_test

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"runtime"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/httplatch/httplatch/internal/testkit/faketx"
	"github.com/httplatch/httplatch/internal/testkit/must"
	"github.com/httplatch/httplatch/lock"
	"github.com/httplatch/httplatch/lock/internal/testkit/fault"
)

// failures are the ways in which work fails.
var failures = map[string]func() ([]byte, error){
	"error":  func() ([]byte, error) { return nil, errMine },
	"panic":  func() ([]byte, error) { panic("mine") },
	"goexit": func() ([]byte, error) { runtime.Goexit(); return nil, nil },
}

// modes say what becomes of a key whose process vanishes.
var modes = map[string][]lock.Option{"refuse": {lock.WithKeep(keep)}, "rerun": {lock.WithKeep(keep), lock.WithRerunAbandoned()}}

// once: Commit promised that nothing frees the key, after the key was freed. An
// http.TimeoutHandler inside Idempotent causes this: its handler goes on.
func TestCommitAfterTheRelease(t *testing.T) {
	bubble(t, func(t *testing.T, s *fault.Store, open func(...lock.Option) *lock.Locker) {
		for _, l := range []*lock.Locker{open(lock.WithKeep(keep)), open(lock.WithKeep(keep), lock.WithRerunAbandoned())} {
			var left context.Context
			var run *lock.Run
			guarded(t.Context(), t, l, func(ctx context.Context, r *lock.Run) ([]byte, error) {
				left, run = context.WithoutCancel(ctx), r
				return nil, errors.New("503: it took too long")
			})
			require.Equal(t, lock.Free, s.State(t, record).State)
			require.ErrorIs(t, lock.Commit(left), lock.ErrLost)
			_, _, err := run.Settle(left, []byte("tombstone"))
			require.ErrorIs(t, err, lock.ErrLost, "nothing was recorded")
		}
	})
}

// once: as above, with the commit while the release is in flight.
func TestCommitDuringTheRelease(t *testing.T) {
	solo(t, func(t *testing.T, s *fault.Store, l *lock.Locker) {
		s.Every(fault.Slow(100*time.Millisecond), fault.Release)
		committed := make(chan error, 1)
		_, _, _ = l.Once(t.Context(), key, print1, func(ctx context.Context) ([]byte, error) {
			time.AfterFunc(50*time.Millisecond, func() { committed <- lock.Commit(ctx) })
			return nil, errors.New("503: it took too long")
		})
		if <-committed == nil {
			require.NotEqual(t, lock.Free, s.State(t, record).State, "Commit returned nil and the key was freed")
		}
	}, lock.WithKeep(keep))
}

// Waiting after Commit goes on: an early answer without the receipt would be
// given to every caller that double-clicked.
func TestCommitKeepsWaitersWaiting(t *testing.T) {
	bubble(t, func(t *testing.T, _ *fault.Store, open func(...lock.Option) *lock.Locker) {
		here, there := open(lock.WithRerunAbandoned()), open(lock.WithRerunAbandoned(), lock.WithWait(time.Minute))
		startRun(here, func(ctx context.Context) ([]byte, error) {
			assert.NoError(t, lock.Commit(ctx))
			time.Sleep(2 * lease)
			return []byte("answer"), nil
		})
		require.Equal(t, "answer", must.Replay(t)(there.Once(t.Context(), key, print1, nil)))
	})
}

// guarded does work under the key as a guard does: it may use its run.
func guarded(ctx context.Context, t *testing.T, l *lock.Locker, work func(ctx context.Context, r *lock.Run) ([]byte, error)) {
	t.Helper()
	run, _, err := l.Begin(ctx, key, print1, nil)
	if !assert.NoError(t, err) || !assert.NotNil(t, run) {
		return
	}
	defer func() { _, _, _ = run.Fail(ctx, errMine) }()
	receipt, err := work(run.Context(), run)
	if err != nil {
		return
	}
	_, _, err = run.Settle(ctx, receipt)
	assert.NoError(t, err)
}

// After Commit, or a call that may have had an effect, the function does not run again, in whatever way it ended. A
// call that is known to have had no effect does not prevent another run.
func TestPossibleEffectKeepsTheKey(t *testing.T) {
	unknown := []byte("unknown")
	for name, calls := range map[string][]bool{ // each call may have had an effect, or had none
		"Commit": nil, "one that may have had one": {true}, "one that had none": {false}, "one of two that may have had one": {true, false},
	} {
		for endName, end := range failures {
			for mode, opts := range modes {
				bubbleCase(t, name+"/"+endName+"/"+mode, func(t *testing.T, _ *fault.Store, open func(...lock.Option) *lock.Locker) {
					var f effect
					var out bytes.Buffer
					l := open(append(opts, lock.WithLogger(slog.New(slog.NewJSONHandler(&out, nil))))...)
					onItsOwn(func() {
						guarded(context.Background(), t, l, func(ctx context.Context, r *lock.Run) ([]byte, error) {
							if calls == nil {
								require.NoError(t, lock.Commit(ctx))
							}
							for _, mayHave := range calls {
								none := must.Get(r.NotePossibleEffect(ctx, unknown))(t)
								if !mayHave {
									none()
								}
							}
							return end()
						})
					})
					receipt, replayed, err := l.Once(t.Context(), key, print1, f.run("again"))
					require.NoError(t, err)
					require.Equal(t, calls == nil || calls[0], replayed)
					if calls == nil {
						require.Empty(t, receipt)
						return
					}
					if !replayed {
						require.Empty(t, out.String())
						return
					}
					require.Equal(t, unknown, receipt)
					require.Contains(t, out.String(), "Check whether the request had an effect")
					require.Contains(t, out.String(), `"console":"?key=once:`)
				})
			}
		}
	}
}

// charge notes an effect that is not a row, between its own row and then.
func charge(then func(context.Context) ([]byte, error)) func(context.Context) ([]byte, error) {
	return func(ctx context.Context) ([]byte, error) {
		_ = faketx.Insert(ctx, "mine")
		if err := lock.Commit(ctx); err != nil {
			return nil, err
		}
		return then(ctx)
	}
}

// After Commit nothing frees the key, though all rows are rolled back.
func TestCommitInATransaction(t *testing.T) {
	mine := func(context.Context) ([]byte, error) { return []byte("mine"), nil }
	for name, tt := range map[string]struct {
		then    func(context.Context) ([]byte, error)
		commit  []faketx.Fault
		outcome faketx.Fault // for 10 s
		there   string       // the receipt; "" is a tombstone
		is      error
	}{
		"it commits":              {then: mine, there: "mine"},
		"it fails":                {then: func(context.Context) ([]byte, error) { return nil, errWork }, is: errWork},
		"it panics":               {then: func(context.Context) ([]byte, error) { panic("as the test wants") }, is: errAny},
		"a serialization failure": {then: mine, commit: []faketx.Fault{faketx.Conflict}, is: lock.ErrUnavailable},
		"the commit is lost":      {then: mine, commit: []faketx.Fault{faketx.LoseRequest}, is: lock.ErrUnavailable},
		"it is asked in vain":     {then: mine, commit: []faketx.Fault{faketx.LoseRequest}, outcome: faketx.Hang, is: lock.ErrUnknown},
	} {
		t.Run(name, func(t *testing.T) {
			txBubble(t, func(t *testing.T, s *faketx.Store, open func(...lock.Option) *lock.Locker) {
				l, other := open(), open()
				s.Next(faketx.Commit, tt.commit...)
				s.Every(faketx.Outcome, tt.outcome)
				time.AfterFunc(10*time.Second, func() { s.Every(faketx.Outcome, nil) })
				_, _, err := once(t, l, charge(tt.then))
				requireIs(t, err, tt.is)
				if tt.outcome != nil {
					time.Sleep(20 * time.Second)
				}
				require.Equal(t, tt.there != "", len(s.Effects()) == 1)
				for range 2 {
					for _, l := range []*lock.Locker{l, other} {
						require.Equal(t, tt.there, must.Replay(t)(l.Once(t.Context(), key, print1, mustNotRun)))
					}
					time.Sleep(10 * lease)
				}
			})
		})
	}
}

// A crash after Commit leaves an unknown outcome, and one before it nothing.
func TestCrashAfterCommitInATransaction(t *testing.T) {
	txBubble(t, func(t *testing.T, s *faketx.Store, open func(...lock.Option) *lock.Locker) {
		txCrash(t, s, func(ctx context.Context) { require.NoError(t, lock.Commit(ctx)) })
		time.Sleep(2 * lease)
		require.ErrorIs(t, ask(t, open(), print1), lock.ErrAbandoned)
		require.Empty(t, s.Effects())
		time.Sleep(keep)
		next(t, s, "", open())
	})
}

// A run that takes over from committed work is itself remembered, if it disappears.
func TestRerunOfCommittedWorkInATransaction(t *testing.T) {
	txBubble(t, func(t *testing.T, s *faketx.Store, open func(...lock.Option) *lock.Locker) {
		rerun := lock.WithRerunAbandoned()
		txCrash(t, s, func(ctx context.Context) { require.NoError(t, lock.Commit(ctx)) }, rerun)
		time.Sleep(keep + time.Second) // it is held for as long, as without a transaction
		txCrash(t, s, func(ctx context.Context) { require.Equal(t, 2, lock.Attempt(ctx)) }, rerun)
		time.Sleep(lease)
		require.ErrorIs(t, ask(t, open(), print1), lock.ErrAbandoned)

		// It is given back as it was after a failure, even a failure of its commit.
		l := open(rerun)
		s.Next(faketx.Commit, faketx.Conflict)
		attempt := 0
		again := func(ctx context.Context) ([]byte, error) {
			attempt = lock.Attempt(ctx)
			return []byte("again"), faketx.Insert(ctx, "again")
		}
		_, _, err := once(t, l, again)
		require.ErrorIs(t, err, lock.ErrUnavailable)
		require.Equal(t, 3, attempt)
		time.Sleep(2 * time.Millisecond)
		require.Equal(t, "again", must.Run(t)(l.Once(t.Context(), key, print1, again)))
		require.Equal(t, 3, attempt)
		require.Equal(t, []string{"again"}, s.Effects())
	})
}

// Where the store takes no note of it, the effect is not to happen.
func TestCommitThatIsNotNoted(t *testing.T) {
	txBubble(t, func(t *testing.T, s *faketx.Store, open func(...lock.Option) *lock.Locker) {
		l := open()
		_, _, err := once(t, l, func(ctx context.Context) ([]byte, error) {
			s.Every(faketx.Renew, faketx.LoseRequest)
			err := lock.Commit(ctx)
			s.Every(faketx.Renew, nil)
			require.ErrorIs(t, err, lock.ErrUnknown)
			return nil, err
		})
		require.ErrorIs(t, err, lock.ErrUnknown)
		must.Replay(t)(l.Once(t.Context(), key, print1, mustNotRun)) // it may have been noted: on the safe side
	})
	// A later renewal makes good for it.
	txBubble(t, func(t *testing.T, s *faketx.Store, open func(...lock.Option) *lock.Locker) {
		txCrash(t, s, func(ctx context.Context) {
			s.Every(faketx.Renew, faketx.LoseRequest)
			require.ErrorIs(t, lock.Commit(ctx), lock.ErrUnknown)
			s.Every(faketx.Renew, nil)
			time.Sleep(lease)
		})
		time.Sleep(2 * lease)
		require.ErrorIs(t, ask(t, open(), print1), lock.ErrAbandoned)
	})
	// The claim that it is to be noted on is another's.
	txBubble(t, func(t *testing.T, s *faketx.Store, open func(...lock.Option) *lock.Locker) {
		l, other := open(lock.WithMaxHold(lease)), open()
		_, replayed, err := once(t, l, func(ctx context.Context) ([]byte, error) {
			time.Sleep(lease)
			next(t, s, "", other)
			require.ErrorIs(t, lock.Commit(ctx), lock.ErrLost)
			return insert("mine")(ctx)
		})
		require.NoError(t, err)
		require.True(t, replayed)
		require.Equal(t, []string{"next"}, s.Effects())
	})
}
