package lock_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/httplatch/httplatch/internal/testkit/journal"
	"github.com/httplatch/httplatch/internal/testkit/must"
	"github.com/httplatch/httplatch/lock"
	"github.com/httplatch/httplatch/lock/internal/testkit/fault"
)

const crowd = 60 // calls that wait for one

var errCard = errors.New("the card was charged, and the answer lost")

// Callers that have waited for a run that fails get its failure: they do not
// repeat it one after the other. A later call runs.
func TestAWaitingCrowdDoesNotRepeatAFailure(t *testing.T) {
	refusal := &lock.RefusedError{Reason: lock.ErrHeld}
	for name, tt := range map[string]struct {
		fn   func(ctx context.Context) ([]byte, error)
		want string // the error of the callers that have waited; "": the receipt
	}{
		"an error":             {func(context.Context) ([]byte, error) { return nil, errCard }, errCard.Error()},
		"a refusal further in": {func(context.Context) ([]byte, error) { return nil, refusal }, refusal.Error()},
		"a panic":              {func(context.Context) ([]byte, error) { panic("secret") }, "panicked"},
		"an exit":              {func(context.Context) ([]byte, error) { runtime.Goexit(); return nil, nil }, "ended its goroutine"},
		"after Commit":         {func(ctx context.Context) ([]byte, error) { return nil, errors.Join(errCard, lock.Commit(ctx)) }, ""},
	} {
		bubbleCase(t, name, func(t *testing.T, s *fault.Store, open func(...lock.Option) *lock.Locker) {
			runs := 0
			var seen events
			l := open(lock.WithWait(time.Minute), lock.WithObserver(seen.observe))
			work := func(ctx context.Context) ([]byte, error) {
				runs++
				time.Sleep(time.Second)
				return tt.fn(ctx)
			}
			go onItsOwn(func() { _, _, _ = l.Once(context.Background(), key, print1, work) })
			synctest.Wait()
			began := time.Now()
			time.AfterFunc(time.Millisecond, func() { assert.ErrorIs(t, ask(t, l, print2), lock.ErrMismatch) })
			for _, err := range meet(crowd, func(int) error {
				_, replayed, err := l.Once(context.Background(), key, print1, work)
				assert.True(t, replayed, "it has run nothing")
				return err
			}) {
				if tt.want == "" {
					require.NoError(t, err)
					continue
				}
				require.ErrorContains(t, err, tt.want)
				require.NotContains(t, err.Error(), "secret")
			}
			require.Equal(t, time.Second, time.Since(began))
			require.Equal(t, 1, runs, "effects")
			synctest.Wait()
			if tt.want == "" {
				require.Equal(t, lock.Settled, s.State(t, record).State, "a committed failure leaves a receipt")
				return
			}
			require.Equal(t, crowd+1, seen.count(lock.EventRefused))
			onItsOwn(func() { _, _, _ = l.Once(context.Background(), key, print1, work) })
			require.Equal(t, 2, runs, "a later call runs")
		})
	}
}

func TestAFailureIsSharedBeforeItsKeyIsFree(t *testing.T) {
	solo(t, func(t *testing.T, s *fault.Store, l *lock.Locker) {
		s.Every(fault.HangRequest, fault.Release)
		began := time.Now()
		startRun(l, func(context.Context) ([]byte, error) {
			time.Sleep(time.Second)
			return nil, errCard
		})
		requireEach(t, errCard, meet(crowd, asking(l, nil)))
		require.Equal(t, time.Second, time.Since(began))
	}, lock.WithWait(time.Minute))
}

// A run that ended because its own caller left decides nothing for the other callers.
func TestAFailureOfACallerThatLeftIsItsOwn(t *testing.T) {
	solo(t, func(t *testing.T, _ *fault.Store, l *lock.Locker) {
		var f effect
		ctx, leave := context.WithTimeout(t.Context(), time.Second)
		defer leave()
		go func() {
			_, _, _ = l.Once(ctx, key, print1, func(ctx context.Context) ([]byte, error) {
				<-ctx.Done()
				return nil, ctx.Err()
			})
		}()
		synctest.Wait()
		requireEach(t, nil, meet(crowd, func(int) error {
			receipt, _, err := l.Once(t.Context(), key, print1, f.run("answer"))
			assert.Equal(t, "answer", string(receipt))
			return err
		}))
		require.EqualValues(t, 1, f.runs.Load())
	}, lock.WithWait(time.Minute))
}

// The failure of a run that has lost its lease may be that loss, so it is not shared, also if the run is the first to
// see that its lease is over.
func TestAFailureAfterALossIsNotShared(t *testing.T) {
	for range 30 {
		bubbleOver(t, direct, func(t *testing.T, s *fault.Store, open func(...lock.Option) *lock.Locker) {
			var f effect
			l := open(lock.WithWait(time.Minute), lock.WithRerunAbandoned())
			s.Every(fault.HangRequest, fault.Renew)
			began := time.Now()
			startRun(l, func(ctx context.Context) ([]byte, error) {
				time.Sleep(validity - time.Since(began))
				return nil, errors.Join(errCard, ctx.Err())
			})
			require.Equal(t, "answer", must.Run(t)(l.Once(t.Context(), key, print1, f.run("answer"))))
		})
	}
}

type namedError struct{ error }

func (namedError) Class() string { return "OOM" }

func TestClassNamesTheCause(t *testing.T) {
	t.Parallel()
	for want, err := range map[string]error{
		"":          nil,
		"OOM":       fmt.Errorf("%w: %w", lock.ErrUnavailable, namedError{context.DeadlineExceeded}),
		"full":      fmt.Errorf("%w: %w", lock.ErrNotApplied, lock.ErrFull),
		"silent":    fmt.Errorf("%w: %w", lock.ErrUnknown, context.DeadlineExceeded),
		"cancelled": fmt.Errorf("%w: %w", lock.ErrUnknown, context.Canceled),
		"closed":    lock.ErrClosed,
		"_OTHER":    errors.New("something else"),
	} {
		require.Equal(t, want, lock.Class(err), err)
	}
}

// A deadline that leaves a store no time to answer does not show a fault of the store. A longer
// deadline that ends without an answer shows that the store is silent.
func TestClassOfASilentStoreUnderCallersDeadline(t *testing.T) {
	for name, tt := range map[string]struct {
		deadline time.Duration
		want     string
	}{
		"has left hardly any time": {budget / 50, "cancelled"},
		"is used up":               {budget / 2, "silent"},
		"is later than the budget": {2 * budget, "silent"},
	} {
		bubbleCase(t, name, func(t *testing.T, s *fault.Store, open func(...lock.Option) *lock.Locker) {
			s.Every(fault.HangRequest, fault.Claim)
			ctx := within(t, tt.deadline)
			err := open().Do(ctx, key, nothing)
			require.ErrorIs(t, err, lock.ErrUnknown)
			require.Equal(t, tt.want, lock.Class(err), err)
			if tt.deadline < budget {
				require.ErrorIs(t, err, context.DeadlineExceeded)
			}
		})
	}
}

// The log says when an outage begins and when it is over. A call that happens to be served during an
// outage does not end it, and an outage soon after another has its line too.
func TestEndOfAnOutageIsLogged(t *testing.T) {
	for of, do := range contenders {
		bubbleCase(t, of, func(t *testing.T, s *fault.Store, open func(...lock.Option) *lock.Locker) {
			var b journal.Journal
			l := open(lock.WithLogger(b.Logger()))
			call := func() error { return do(t.Context(), l, nothing) }
			count := func(text string) int { return strings.Count(strings.Join(b.Lines(), "\n"), text) }
			const failed, served = "level=ERROR", `level=INFO msg="lock: the store serves calls again"`
			for round := range 2 {
				require.NoError(t, call())
				require.Equal(t, round, count(served), "and never without an outage")
				s.Every(fault.Refuse)
				require.Error(t, call())
				time.Sleep(10 * time.Second)
				require.Error(t, call())
				s.Every(nil)
				require.Equal(t, round+1, count(failed))

				time.Sleep(time.Second)
				require.NoError(t, call())
				require.Equal(t, round, count(served), "one answer may be luck")
				time.Sleep(5 * time.Second)
				require.NoError(t, call())
				require.Equal(t, round+1, count(served))
				require.NoError(t, call())
				require.Equal(t, round+1, count(served), "once")
			}
			require.Positive(t, count("failed_for=10"))
			require.Equal(t, 2, count("failures=2"), b.Lines())
			require.Equal(t, 2, count("repeated=0"), "each outage counts its own: %v", b.Lines())
		})
	}
}
