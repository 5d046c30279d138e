package lock_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/httplatch/httplatch/lock"
	"github.com/httplatch/httplatch/lock/internal/send"
)

// lingering is a store whose first claim returns when its caller has gone, and
// is applied a minute later. It says so, unless it is silent. Until then, no
// claim is answered.
type lingering struct {
	lock.Store

	silent bool
	begun  atomic.Bool
	landed chan struct{}
}

func (s *lingering) MaxLag() time.Duration { return time.Second }

func (s *lingering) Claim(ctx context.Context, key string, c lock.Claim) (lock.Entry, error) {
	select {
	case <-s.landed:
		return s.Store.Claim(ctx, key, c)
	case <-ctx.Done():
	}
	if s.begun.CompareAndSwap(false, true) {
		counts := send.InFlight(ctx)
		if !s.silent {
			counts.Depart()
		}
		time.AfterFunc(time.Minute, func() {
			_, _ = s.Store.Claim(context.WithoutCancel(ctx), key, c)
			if !s.silent {
				counts.Arrive(send.Lost)
			}
			close(s.landed)
		})
	}
	return lock.Entry{}, errors.New("nobody waits")
}

// A store may return from a call before its command is through, if it says so:
// the claim is swept for as long as something carries it, and Close waits.
func TestCallsThatAreLeftBehind(t *testing.T) {
	t.Parallel()
	for name, silent := range map[string]bool{"reported": false, "not reported": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				memory := lock.NewMemory()
				s := &lingering{Store: memory, silent: silent, landed: make(chan struct{})}
				l := lock.New(s, lock.WithLogger(quiet), lock.WithLease(time.Hour), lock.WithMaxHold(2*time.Hour))
				_, err := l.Acquire(t.Context(), "k")
				require.ErrorIs(t, err, lock.ErrUnknown)
				<-s.landed
				time.Sleep(20 * time.Second)
				e, err := memory.Get(t.Context(), "k")
				require.NoError(t, err)
				if silent {
					require.Equal(t, lock.Held, e.State, "an orphan, as nobody looked for it any more")
				} else {
					require.Equal(t, lock.Free, e.State)
				}
				require.NoError(t, l.Close(t.Context()))
			})
		})
	}
}

func TestCloseWaitsForCallsThatAreLeftBehind(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := &lingering{Store: lock.NewMemory(), landed: make(chan struct{})}
		l := lock.New(s, lock.WithLogger(quiet))
		_, err := l.Acquire(t.Context(), "k")
		require.ErrorIs(t, err, lock.ErrUnknown)
		began := time.Now()
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
		defer cancel()
		require.NoError(t, l.Close(ctx))
		require.GreaterOrEqual(t, time.Since(began), time.Minute-time.Second)
	})
}
