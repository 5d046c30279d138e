package lock_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/httplatch/httplatch/lock"
	"github.com/httplatch/httplatch/lock/internal/fault"
)

// What Acquire says of a context that ends: when it returns, and with what.
func TestAcquireWhoseContextEnds(t *testing.T) {
	const third, hasty = budget / 3, budget / 10
	errLeft := errors.New("the client has left")
	for _, tt := range []struct {
		name    string
		held    bool // by another, and waited for
		fault   fault.Func
		took    time.Duration
		granted bool
	}{
		{name: "waiting for its turn", held: true, took: hasty},
		{name: "claim without an answer", fault: fault.HangRequest, took: third},
		{name: "claim without an answer that was applied", fault: fault.HangReply, took: third},
		{name: "claim that is answered", fault: fault.Slow(third / 2), took: third / 2, granted: true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			bubbleOver(t, direct, func(t *testing.T, s *fault.Store, open func(...lock.Option) *lock.Locker) {
				l := open(lock.WithWait(time.Minute))
				if tt.held {
					other, err := l.Acquire(t.Context(), key)
					require.NoError(t, err)
					defer func() { require.NoError(t, other.Release(context.WithoutCancel(t.Context()))) }()
				} else {
					s.Next(fault.Claim, tt.fault)
				}
				ctx, leave := context.WithCancelCause(t.Context())
				time.AfterFunc(hasty, func() { leave(errLeft) })
				began := time.Now()
				e, err := l.Acquire(ctx, key)
				require.Equal(t, tt.took, time.Since(began))
				if !tt.granted {
					require.ErrorIs(t, err, errLeft)
					return
				}
				require.NoError(t, err)
				require.ErrorIs(t, context.Cause(e.Context()), errLeft)
				require.NoError(t, e.Release(t.Context()))
			})
		})
	}
}
