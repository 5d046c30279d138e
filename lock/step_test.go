package lock_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/httplatch/httplatch/internal/testkit/must"
	"github.com/httplatch/httplatch/lock"
	"github.com/httplatch/httplatch/lock/internal/testkit/fault"
	"github.com/httplatch/httplatch/lock/memstore"
)

// provider is another service: it counts its calls.
type provider struct{ calls map[string]int }

func (p *provider) call(name, result string) func(context.Context) ([]byte, error) {
	return func(context.Context) ([]byte, error) {
		if p.calls == nil {
			p.calls = map[string]int{}
		}
		p.calls[name]++
		return []byte(result), nil
	}
}

// stepsOf are the steps of an order, until the first that fails.
func stepsOf(ctx context.Context, p *provider, names ...string) (results []string, err error) {
	for _, name := range names {
		result, err := lock.Step(ctx, name, p.call(name, fmt.Sprintf("%s %d", name, p.calls[name]+1)))
		if err != nil {
			return results, err
		}
		results = append(results, string(result))
	}
	return results, nil
}

// A later attempt gets the results of the steps that are done, and runs the rest: after a failure, and after the
// end of the process.
func TestAStepRunsOncePerSubmission(t *testing.T) {
	bubble(t, func(t *testing.T, s *fault.Store, open func(...lock.Option) *lock.Locker) {
		var p provider
		opts := []lock.Option{lock.WithKeep(keep), lock.WithRerunAbandoned()}
		l := open(opts...)
		_, _, err := l.Once(t.Context(), key, print1, func(ctx context.Context) ([]byte, error) {
			_, err := stepsOf(ctx, &p, "reserve")
			require.NoError(t, err)
			return nil, errors.New("sold out")
		})
		require.ErrorContains(t, err, "sold out")
		require.Equal(t, lock.Free, s.State(t, record).State, "a failure frees the key")

		crash(t, s, func(ctx context.Context) {
			_, err := stepsOf(ctx, &p, "reserve", "charge")
			require.NoError(t, err)
		}, opts...)
		s.Every(nil)
		time.Sleep(lease)

		require.Equal(t, "reserve 1, charge 1, courier 1", must.Run(t)(l.Once(t.Context(), key, print1, func(ctx context.Context) ([]byte, error) {
			require.Equal(t, 2, lock.Attempt(ctx))
			results, err := stepsOf(ctx, &p, "reserve", "charge", "courier")
			return []byte(strings.Join(results, ", ")), err
		})))
		require.Equal(t, map[string]int{"reserve": 1, "charge": 1, "courier": 1}, p.calls)
		require.Greater(t, s.State(t, record).Left, keep+time.Minute, "the receipt outlives the steps, so a new submission finds none")
	})
}

// trips are the calls to the store so far.
func trips(s *fault.Store) (n int) {
	for _, op := range []fault.Op{fault.Claim, fault.Renew, fault.Settle, fault.Release, fault.Get, fault.Amend} {
		n += s.Count(op)
	}
	return n
}

// A step costs two calls, one if it was done, and three if it was begun. Work without steps costs two.
func TestCallsOfAStep(t *testing.T) {
	solo(t, func(t *testing.T, s *fault.Store, l *lock.Locker) {
		var p provider
		costs := func(want int, work func(ctx context.Context) error) {
			before := trips(s)
			_, _, _ = l.Once(t.Context(), key, print1, func(ctx context.Context) ([]byte, error) { return nil, errors.Join(work(ctx), errors.New("fails")) })
			require.Equal(t, want, trips(s)-before)
		}
		costs(2, nothing)
		costs(2+2, func(ctx context.Context) error { _, err := stepsOf(ctx, &p, "charge"); return err })
		costs(2+1, func(ctx context.Context) error { _, err := stepsOf(ctx, &p, "charge"); return err })
		fails := func(ctx context.Context) error {
			_, err := lock.Step(ctx, "courier", func(context.Context) ([]byte, error) { return nil, errors.New("no answer") })
			return err
		}
		costs(2+1, fails)
		costs(2+2, fails)
		costs(2+3, func(ctx context.Context) error { _, err := stepsOf(ctx, &p, "courier"); return err })
	}, lock.WithKeep(keep))
}

// A step that has failed may run again in the same attempt, one that is done may not.
func TestMistakesWithSteps(t *testing.T) {
	t.Parallel()
	l := fault.Locker(t, memstore.New(), lock.WithRerunAbandoned())
	ok := func(context.Context) ([]byte, error) { return []byte("ok"), nil }
	never := func(context.Context) ([]byte, error) { return nil, errors.New("it ran") }
	step := func(ctx context.Context, name string, fn func(context.Context) ([]byte, error)) error {
		_, err := lock.Step(ctx, name, fn)
		return err
	}
	require.ErrorContains(t, step(t.Context(), "charge", never), "outside of Locker.Once")
	var late context.Context
	must.Run(t)(l.Once(t.Context(), key, print1, func(ctx context.Context) ([]byte, error) {
		late = ctx
		require.ErrorContains(t, step(ctx, "", never), "has 0 bytes")
		require.ErrorContains(t, step(ctx, strings.Repeat("n", 129), never), "has 129 bytes")
		failed := errors.New("failed")
		require.Equal(t, failed, step(ctx, "charge", func(context.Context) ([]byte, error) { return nil, failed }))
		require.ErrorContains(t, step(ctx, "charge", func(context.Context) ([]byte, error) { return make([]byte, 1<<20+1), nil }), "at most 1048576")
		require.Panics(t, func() { _ = step(ctx, "charge", func(context.Context) ([]byte, error) { panic("bug") }) })
		require.NoError(t, step(ctx, "charge", func(ctx context.Context) ([]byte, error) {
			require.ErrorContains(t, step(ctx, "charge", never), "a second Step \"charge\"")
			return make([]byte, 1<<20), step(ctx, "inner", ok)
		}))
		require.ErrorContains(t, step(ctx, "charge", never), "a second Step \"charge\"")
		require.NoError(t, step(ctx, "charge/1", ok))
		return nil, nil
	}))
	require.ErrorContains(t, step(late, "late", never), "after the answer")
}

// A result that is not known to be kept is no result: the work fails, and the next attempt finds the result or
// runs the step again.
func TestAnUnconfirmedStepHasNoResult(t *testing.T) {
	for name, c := range map[string]struct {
		op    fault.Op
		fault fault.Func
		runs  int // of the step in the end
		ran   string
	}{
		"claim lost":       {fault.Claim, fault.HangRequest, 1, "was not run"},
		"claim unanswered": {fault.Claim, fault.HangReply, 1, "was not run"},
		"claim late":       {fault.Claim, fault.Late(time.Second), 1, "was not run"},
		"claim refused":    {fault.Claim, fault.Refuse, 1, "was not run"},
		"result lost":      {fault.Settle, fault.HangRequest, 2, "has run"},
		"result kept":      {fault.Settle, fault.HangReply, 1, "has run"},
		"result late":      {fault.Settle, fault.Late(time.Second), 2, "has run"},
		"result refused":   {fault.Settle, fault.Refuse, 2, "has run"},
	} {
		bubbleCase(t, name, func(t *testing.T, s *fault.Store, open func(...lock.Option) *lock.Locker) {
			var p provider
			l := open(lock.WithKeep(keep), lock.WithRerunAbandoned())
			_, _, err := l.Once(t.Context(), key, print1, func(ctx context.Context) ([]byte, error) {
				s.Every(c.fault, c.op)
				_, err := stepsOf(ctx, &p, "charge")
				s.Every(nil)
				return nil, err
			})
			require.ErrorIs(t, err, lock.ErrUnavailable)
			require.ErrorContains(t, err, c.ran)
			var kept []string
			must.Run(t)(l.Once(t.Context(), key, print1, func(ctx context.Context) ([]byte, error) {
				kept, err = stepsOf(ctx, &p, "charge")
				return nil, err
			}))
			require.Equal(t, c.runs, p.calls["charge"])
			time.Sleep(10 * time.Second) // what is late lands, and changes nothing
			require.Contains(t, string(s.State(t, record+"/charge").Receipt), kept[0])
		})
	}
}

// An attempt that was paused, and whose key another process has taken over, neither begins a step, nor
// keeps a result over that of its successor.
func TestAnAttemptThatIsOverKeepsNoStep(t *testing.T) {
	bubble(t, func(t *testing.T, s *fault.Store, open func(...lock.Option) *lock.Locker) {
		opts := []lock.Option{lock.WithKeep(keep), lock.WithRerunAbandoned()}
		paused, goOn, over := make(chan struct{}), make(chan struct{}), make(chan struct{})
		var result, next error
		first, second := open(opts...), open(opts...)
		go func() {
			defer close(over)
			_, _, _ = first.Once(t.Context(), key, print1, func(ctx context.Context) ([]byte, error) {
				_, result = lock.Step(ctx, "charge", func(context.Context) ([]byte, error) {
					s.Every(fault.LoseRequest, fault.Renew) // as if the process was paused
					close(paused)
					<-goOn
					return []byte("old"), nil
				})
				_, next = lock.Step(ctx, "courier", func(context.Context) ([]byte, error) { t.Error("it ran"); return nil, nil })
				return []byte("old"), nil
			})
		}()
		<-paused
		time.Sleep(2 * lease)
		s.Every(nil)
		require.Equal(t, "new", must.Run(t)(second.Once(t.Context(), key, print1, func(ctx context.Context) ([]byte, error) {
			kept, err := lock.Step(ctx, "charge", func(context.Context) ([]byte, error) {
				close(goOn)
				synctest.Wait()
				return []byte("new"), nil
			})
			return kept, err
		})))
		<-over
		require.ErrorIs(t, result, lock.ErrLost)
		require.ErrorContains(t, result, "a later attempt has begun it")
		require.ErrorIs(t, next, lock.ErrLost)
		require.Contains(t, string(s.State(t, record+"/charge").Receipt), "new")
	})
}

// A process that was paused begins a step before any timer of its lease: here both are due at the same moment.
func TestStepInTheInstantTheValidityIsOver(t *testing.T) {
	for range 200 {
		solo(t, func(t *testing.T, s *fault.Store, l *lock.Locker) {
			s.Every(fault.HangRequest, fault.Renew)
			began := time.Now()
			_, _, err := l.Once(t.Context(), key, print1, func(ctx context.Context) ([]byte, error) {
				time.Sleep(validity - time.Since(began))
				return lock.Step(ctx, "charge", func(context.Context) ([]byte, error) { t.Error("it ran"); return nil, nil })
			})
			require.ErrorIs(t, err, lock.ErrLost)
			require.Equal(t, lock.Free, s.State(t, record+"/charge").State)
		})
	}
}

// The result of an attempt that lost its lease meanwhile is kept for its successor, and the attempt goes no further.
func TestAResultAfterTheLeaseIsForTheSuccessor(t *testing.T) {
	solo(t, func(t *testing.T, s *fault.Store, l *lock.Locker) {
		var p provider
		_, _, err := l.Once(t.Context(), key, print1, func(ctx context.Context) ([]byte, error) {
			return lock.Step(ctx, "charge", func(context.Context) ([]byte, error) {
				s.Every(fault.LoseRequest, fault.Renew)
				time.Sleep(lease)
				return []byte("old"), nil
			})
		})
		require.ErrorIs(t, err, lock.ErrLost)
		s.Every(nil)
		require.Equal(t, "old", must.Run(t)(l.Once(t.Context(), key, print1, func(ctx context.Context) ([]byte, error) {
			return lock.Step(ctx, "charge", p.call("charge", "new"))
		})))
	}, lock.WithKeep(keep), lock.WithRerunAbandoned())
}

// The claim of an attempt that is about to end is answered with the claim of its successor, after the end: it
// replaces nothing, whatever context its work uses.
func TestAnAttemptThatIsOverReplacesNoClaim(t *testing.T) {
	bubble(t, func(t *testing.T, s *fault.Store, open func(...lock.Option) *lock.Locker) {
		opts := []lock.Option{lock.WithKeep(keep), lock.WithRerunAbandoned(), lock.WithBudget(lease / 2)}
		first, second := open(opts...), open(opts...)
		s.Every(fault.LoseRequest, fault.Renew)
		arrives := func(after time.Duration) fault.Func {
			return func(ctx context.Context, apply func() error) error {
				fault.Sleep(context.WithoutCancel(ctx), after)
				return apply()
			}
		}
		over := make(chan error, 1)
		go func() {
			_, _, _ = first.Once(t.Context(), key, print1, func(ctx context.Context) ([]byte, error) {
				time.Sleep(lease - 300*time.Millisecond)
				s.Next(fault.Claim, arrives(time.Second), nil, nil, nil, arrives(600*time.Millisecond))
				_, err := lock.Step(context.WithoutCancel(ctx), "charge", func(context.Context) ([]byte, error) { return []byte("old"), nil })
				over <- err
				return nil, err
			})
		}()
		time.Sleep(lease + 50*time.Millisecond)
		require.Equal(t, "new", must.Run(t)(second.Once(t.Context(), key, print1, func(ctx context.Context) ([]byte, error) {
			require.Equal(t, 2, lock.Attempt(ctx))
			return lock.Step(ctx, "charge", func(context.Context) ([]byte, error) {
				require.ErrorIs(t, <-over, lock.ErrLost)
				return []byte("new"), nil
			})
		})))
	})
}

// The first step of a guard that does not go on with it is logged, once. Each guard has its own Locker, of one store.
func TestAStepThatIsNotResumedIsLogged(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		opts  []lock.Option
		lines int
	}{"refuse": {nil, 2}, "run again": {[]lock.Option{lock.WithRerunAbandoned()}, 0}} {
		t.Run(name, func(t *testing.T) {
			var p provider
			var log bytes.Buffer
			l := fault.Locker(t, memstore.New(), append(c.opts, lock.WithLogger(slog.New(slog.NewTextHandler(&log, nil))))...)
			guards := []*lock.Locker{l, l.With()}
			for i, key := range []string{"a", "b", "c", "d"} {
				must.Run(t)(guards[i%2].Once(t.Context(), key, nil, func(ctx context.Context) ([]byte, error) {
					_, err := stepsOf(ctx, &p, "charge", "courier")
					return nil, err
				}))
			}
			require.Equal(t, c.lines, strings.Count(log.String(), "WithRerunAbandoned"), log.String())
		})
	}
}

// A store that is full refuses the step before it runs, or its result.
func TestAStepOverAFullStore(t *testing.T) {
	t.Parallel()
	var p provider
	l := fault.Locker(t, memstore.New(memstore.WithLimits(100, 100<<10)), lock.WithRerunAbandoned())
	_, _, err := l.Once(t.Context(), key, nil, func(ctx context.Context) ([]byte, error) {
		return lock.Step(ctx, "charge", p.call("charge", strings.Repeat("x", 200<<10)))
	})
	require.ErrorIs(t, err, lock.ErrFull)
	require.ErrorContains(t, err, "has run")
}
