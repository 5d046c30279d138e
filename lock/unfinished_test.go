package lock_test

import (
	"context"
	"errors"
	"iter"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/httplatch/httplatch/internal/testkit/faketx"
	"github.com/httplatch/httplatch/internal/testkit/must"
	"github.com/httplatch/httplatch/internal/testkit/virtual"
	"github.com/httplatch/httplatch/lock"
	"github.com/httplatch/httplatch/lock/internal/testkit/fault"
	"github.com/httplatch/httplatch/lock/memstore"
)

// listed collects a listing.
func listed(t *testing.T, list iter.Seq2[lock.Unfinished, error]) (all []lock.Unfinished) {
	t.Helper()
	for u, err := range list {
		require.NoError(t, err)
		all = append(all, u)
	}
	return all
}

// Submissions that are answered or running are not listed. Those whose work has failed after a step, or whose
// process has vanished, are, with their steps in order.
func TestUnfinished(t *testing.T) {
	virtual.Run(t, func(t *testing.T) {
		memory := memstore.New()
		l := lock.New(memory, lock.WithLogger(quiet), lock.WithRerunAbandoned())
		dying := fault.New()
		dying.Serve(memory)
		other := lock.New(dying, lock.WithLogger(quiet))
		var p provider
		order := func(l *lock.Locker, key string, end error, names ...string) {
			_, _, err := l.Once(t.Context(), key, nil, func(ctx context.Context) ([]byte, error) {
				_, err := stepsOf(ctx, &p, names...)
				require.NoError(t, err)
				if end != nil && len(names) > 0 {
					_, err = lock.Step(ctx, "began", func(context.Context) ([]byte, error) { return nil, end })
					require.Equal(t, end, err)
				}
				return nil, end
			})
			require.Equal(t, end, err)
		}
		order(l, "done", nil, "z", "a")
		order(l, "plain", errors.New("fails without steps"))
		began := time.Now()
		order(l, "order=1", errors.New("fails"), "z", "y", "x", "a")
		time.Sleep(time.Minute)
		running := make(chan struct{})
		go func() {
			_, _, _ = l.Once(t.Context(), "running", nil, func(ctx context.Context) ([]byte, error) {
				_, err := stepsOf(ctx, &p, "a")
				<-running
				return nil, err
			})
		}()
		time.Sleep(time.Minute)
		dying.Every(deadEnd, fault.Renew, fault.Release)
		order(other, "order=2", errors.New("dies"), "b", "a")
		time.Sleep(time.Minute)

		all := listed(t, l.Unfinished(t.Context()))
		require.Equal(t, 2, l.Stats().Unfinished)
		require.Len(t, all, 2)
		one, two := all[0], all[1]
		require.Equal(t, "order=1", one.Label)
		require.Equal(t, began.Unix(), one.Since.Unix())
		require.True(t, one.Freed)
		require.Empty(t, one.Token)
		require.Equal(t, []string{"z", "y", "x", "a", "began, not done"}, stepsIn(one))
		require.Equal(t, "y 1", string(one.Steps[1].Result))
		require.Equal(t, "order=2", two.Label)
		require.False(t, two.Freed)
		require.NotEmpty(t, two.Token)
		require.Equal(t, []string{"b", "a", "began, not done"}, stepsIn(two))

		order(l, "order=1", nil, "z")
		require.Len(t, listed(t, l.Unfinished(t.Context())), 1, "one is finished")
		close(running)
		ctx := within(t, time.Hour)
		_ = other.Close(ctx)
		_ = l.Close(ctx)
	})
}

// slowReads is a store whose reads are slow, so that an entry may end between two of them.
type slowReads struct{ *memstore.Store }

func (s slowReads) Get(ctx context.Context, key string) (lock.Entry, error) {
	time.Sleep(100 * time.Millisecond)
	return s.Store.Get(ctx, key)
}

// A submission that was answered after a step had failed is never listed: the claim of the step ends no later than
// the answer.
func TestAnsweredAfterAFailedStepIsNotUnfinished(t *testing.T) {
	virtual.Run(t, func(t *testing.T) {
		l := lock.New(slowReads{memstore.New()}, lock.WithLogger(quiet), lock.WithRerunAbandoned(), lock.WithKeep(time.Minute), lock.WithMaxHold(time.Minute))
		must.Run(t)(l.Once(t.Context(), "order", nil, func(ctx context.Context) ([]byte, error) {
			_, err := lock.Step(ctx, "charge", func(context.Context) ([]byte, error) { return nil, errors.New("declined") })
			require.Error(t, err)
			return []byte("declined"), nil
		}))
		for end := time.Now().Add(4 * time.Minute); time.Now().Before(end); { // longer than anything is kept
			require.Empty(t, listed(t, l.Unfinished(t.Context())))
			time.Sleep(70 * time.Millisecond)
		}
		require.NoError(t, l.Close(t.Context()))
	})
}

// stepsIn are the names of the steps of u.
func stepsIn(u lock.Unfinished) (names []string) {
	for _, s := range u.Steps {
		if !s.Done {
			s.Name += ", not done"
		}
		names = append(names, s.Name)
	}
	return names
}

// A step is kept by itself, whatever becomes of the transaction of the work.
func TestStepsOfATransactionThatWasRolledBack(t *testing.T) {
	t.Parallel()
	txBubble(t, func(t *testing.T, _ *faketx.Store, open func(...lock.Option) *lock.Locker) {
		var p provider
		l := open()
		for _, end := range []error{errWork, nil} {
			_, _, err := l.Once(t.Context(), key, print1, func(ctx context.Context) ([]byte, error) {
				_, err := stepsOf(ctx, &p, "charge")
				return []byte("done"), errors.Join(err, end)
			})
			require.ErrorIs(t, err, end)
		}
		require.Equal(t, 1, p.calls["charge"])
	})
}

func TestUnfinishedOverAStoreThatCannotList(t *testing.T) {
	t.Parallel()
	l := fault.Locker(t, struct{ lock.Store }{memstore.New()})
	for _, err := range l.Unfinished(t.Context()) {
		require.ErrorIs(t, err, errors.ErrUnsupported)
	}
}
