package lock_test

import (
	"context"
	"errors"
	"iter"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/httplatch/httplatch/internal/testkit/faketx"
	"github.com/httplatch/httplatch/lock"
	"github.com/httplatch/httplatch/lock/memstore"
)

// stopped is a store whose process can be stopped: none of its later calls arrives.
type stopped struct {
	lock.Store
	lock.Inspector
	dead bool
}

func (s *stopped) Describe() lock.Description { return lock.Description{MaxLag: 1} }

func (s *stopped) arrives() error {
	if s.dead {
		return errors.New("the process is dead")
	}
	return nil
}

func (s *stopped) Renew(ctx context.Context, key string, c lock.Claim) (bool, error) {
	if err := s.arrives(); err != nil {
		return false, err
	}
	return s.Store.Renew(ctx, key, c)
}

func (s *stopped) Release(ctx context.Context, key string, c lock.Claim) (bool, error) {
	if err := s.arrives(); err != nil {
		return false, err
	}
	return s.Store.Release(ctx, key, c)
}

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
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		memory := memstore.New()
		l := lock.New(memory, lock.WithLogger(quiet), lock.WithRerunAbandoned())
		dying := &stopped{Store: memory, Inspector: memory}
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
		dying.dead = true
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
		require.Equal(t, []string{"z", "y", "x", "a", "began"}, stepNames(one.Steps))
		require.Equal(t, []bool{true, true, true, true, false}, stepsDone(one.Steps))
		require.Equal(t, "y 1", string(one.Steps[1].Result))
		require.Equal(t, "order=2", two.Label)
		require.False(t, two.Freed)
		require.NotEmpty(t, two.Token)
		require.Equal(t, []string{"b", "a", "began"}, stepNames(two.Steps))

		order(l, "order=1", nil, "z")
		require.Len(t, listed(t, l.Unfinished(t.Context())), 1, "one is finished")
		close(running)
		ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
		defer cancel()
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
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		l := lock.New(slowReads{memstore.New()}, lock.WithLogger(quiet), lock.WithRerunAbandoned(), lock.WithKeep(time.Minute), lock.WithMaxHold(time.Minute))
		_, _, err := l.Once(t.Context(), "order", nil, func(ctx context.Context) ([]byte, error) {
			_, err := lock.Step(ctx, "charge", func(context.Context) ([]byte, error) { return nil, errors.New("declined") })
			require.Error(t, err)
			return []byte("declined"), nil
		})
		require.NoError(t, err)
		for end := time.Now().Add(4 * time.Minute); time.Now().Before(end); { // longer than anything is kept
			require.Empty(t, listed(t, l.Unfinished(t.Context())))
			time.Sleep(70 * time.Millisecond)
		}
		require.NoError(t, l.Close(t.Context()))
	})
}

func stepNames(steps []lock.UnfinishedStep) (names []string) {
	for _, s := range steps {
		names = append(names, s.Name)
	}
	return names
}

func stepsDone(steps []lock.UnfinishedStep) (done []bool) {
	for _, s := range steps {
		done = append(done, s.Done)
	}
	return done
}

// A step is kept by itself, whatever becomes of the transaction of the work.
func TestStepsOfATransactionThatWasRolledBack(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := faketx.New()
		l := lock.New(s, lock.WithLogger(quiet), lock.WithTransaction())
		var p provider
		work := func(end error) func(ctx context.Context) ([]byte, error) {
			return func(ctx context.Context) ([]byte, error) {
				_, err := stepsOf(ctx, &p, "charge")
				return []byte("done"), errors.Join(err, end)
			}
		}
		_, _, err := l.Once(t.Context(), key, print1, work(errors.New("sold out")))
		require.ErrorContains(t, err, "sold out")
		_, _, err = l.Once(t.Context(), key, print1, work(nil))
		require.NoError(t, err)
		require.Equal(t, 1, p.calls["charge"])
		require.NoError(t, l.Close(t.Context()))
	})
}

// A store that cannot list by pages says so.
func TestUnfinishedOverAStoreThatCannotList(t *testing.T) {
	t.Parallel()
	l := lockerOver(t, struct{ lock.Store }{memstore.New()})
	for _, err := range l.Unfinished(t.Context()) {
		require.ErrorIs(t, err, errors.ErrUnsupported)
	}
}
