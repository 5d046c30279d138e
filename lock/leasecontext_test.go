package lock_test

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/httplatch/httplatch/lock"
	"github.com/httplatch/httplatch/lock/internal/testkit/fault"
	"github.com/httplatch/httplatch/lock/memstore"
)

type valueKey struct{}

// The part of the context that can end is made when it is first needed. So the
// first method to be called, and the time of the call, must make no difference.
func TestLeaseContextIsTheSameWhenItIsAskedForLate(t *testing.T) {
	gone := errors.New("the client has gone")
	type step func(cancel context.CancelCauseFunc, e *lock.Lease, s *fault.Store)
	leave := func(cancel context.CancelCauseFunc, _ *lock.Lease, _ *fault.Store) { cancel(gone) }
	release := func(_ context.CancelCauseFunc, e *lock.Lease, _ *fault.Store) { _ = e.Release(context.Background()) }
	lose := func(_ context.CancelCauseFunc, e *lock.Lease, s *fault.Store) {
		s.Free(t, key)
		_ = e.Extend(context.Background())
	}
	cases := []struct {
		name  string
		opts  []lock.Option
		steps []step
		err   error // nil: it goes on
		cause error
	}{
		{"held", nil, nil, nil, nil},
		{"released", nil, []step{release}, context.Canceled, context.Canceled},
		{"lost", nil, []step{lose}, context.Canceled, lock.ErrLost},
		{"lost, then released", nil, []step{lose, release}, context.Canceled, lock.ErrLost},
		{"client gone", nil, []step{leave}, context.Canceled, gone},
		{"client gone, then released", nil, []step{leave, release}, context.Canceled, gone},
		{"client gone, then lost", nil, []step{leave, lose}, context.Canceled, gone},
		{"released, then client gone", nil, []step{release, leave}, context.Canceled, context.Canceled},
		{"lost, then client gone", nil, []step{lose, leave}, context.Canceled, lock.ErrLost},
		{"detached, client gone", []lock.Option{lock.WithDetached()}, []step{leave}, nil, nil},
		{"detached, client gone, then released", []lock.Option{lock.WithDetached()}, []step{leave, release}, context.Canceled, context.Canceled},
		{"detached, client gone, then lost", []lock.Option{lock.WithDetached()}, []step{leave, lose}, context.Canceled, lock.ErrLost},
	}
	asked := map[string]func(context.Context){
		"late":         func(context.Context) {},
		"early":        func(ctx context.Context) { ctx.Done() },
		"by its child": func(ctx context.Context) { context.AfterFunc(ctx, func() {}) },
	}
	for _, c := range cases {
		for when, ask := range asked {
			bubbleCase(t, c.name+" asked "+when, func(t *testing.T, s *fault.Store, open func(...lock.Option) *lock.Locker) {
				parent, cancel := context.WithCancelCause(context.WithValue(t.Context(), valueKey{}, "value"))
				defer cancel(nil)
				e, err := open(c.opts...).Acquire(parent, key)
				require.NoError(t, err)
				ctx := e.Context()
				ask(ctx)
				for _, do := range c.steps {
					do(cancel, e, s)
				}
				child, stop := context.WithCancel(ctx)
				defer stop()
				for _, ctx := range []context.Context{ctx, child} {
					require.ErrorIs(t, ctx.Err(), c.err)
					require.ErrorIs(t, context.Cause(ctx), c.cause)
					require.Equal(t, "value", ctx.Value(valueKey{}))
					held, ok := lock.FromContext(ctx)
					require.True(t, ok)
					require.Same(t, e, held)
					require.Equal(t, c.err != nil, over(ctx))
				}
				require.NoError(t, ignoreLost(e.Release(context.Background())))
			})
		}
	}
}

// over reports whether the channel of ctx says so.
func over(ctx context.Context) bool {
	select {
	case <-ctx.Done():
		return true
	default:
		return false
	}
}

func ignoreLost(err error) error {
	if errors.Is(err, lock.ErrLost) {
		return nil
	}
	return err
}

func TestLeaseContextPrintsNothingOfTheLease(t *testing.T) {
	e := acquired(t, lock.New(memstore.New()), "user=42")
	defer func() { _ = e.Release(context.Background()) }()
	require.Equal(t, "lock.Lease.Context", fmt.Sprint(e.Context()))
	require.NotContains(t, fmt.Sprintf("%+v", e.Context()), "42")
}
