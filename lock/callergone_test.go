package lock_test

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/httplatch/httplatch/lock"
	"github.com/httplatch/httplatch/lock/internal/fault"
)

// insists is a store that answers after most of a third of the budget, even if contexts end before.
func insists(_ context.Context, apply func() error) error {
	time.Sleep(budget/3 - time.Millisecond)
	return apply()
}

// A caller whose context ends returns after a third of the budget at the latest, for any fault of
// its claim, with the cause or with a lease.
func TestACallerThatLeavesIsBackSoon(t *testing.T) {
	for name, tt := range map[string]struct {
		fault   fault.Func
		prepare func(t *testing.T, s *fault.Store, l *lock.Locker)
	}{
		"silence": {fault: fault.HangRequest},
		"silence, without tokens": {fault: fault.HangRequest, prepare: func(t *testing.T, s *fault.Store, l *lock.Locker) {
			t.Helper()
			for i := 0; l.Stats().Retries > 0; i++ {
				s.Next(fault.Claim, fault.Refuse)
				_ = l.Do(t.Context(), "spent", nothing)
			}
		}},
		"an own orphan": {fault: insists, prepare: func(t *testing.T, s *fault.Store, l *lock.Locker) {
			t.Helper()
			s.Every(fault.HangReply, fault.Claim)
			s.Every(fault.HangRequest, fault.Release)
			_, err := l.Acquire(t.Context(), key)
			require.ErrorIs(t, err, lock.ErrUnknown)
		}},
		"a key that changes hands": {fault: insists, prepare: func(t *testing.T, s *fault.Store, _ *lock.Locker) {
			t.Helper()
			s.Serve(neverOurs{s.Server()})
		}},
	} {
		for leaves := time.Millisecond; leaves < budget; leaves += 30 * time.Millisecond {
			bubbleCase(t, fmt.Sprintf("%s, after %v", name, leaves), func(t *testing.T, s *fault.Store, open func(...lock.Option) *lock.Locker) {
				l := open()
				if tt.prepare != nil {
					tt.prepare(t, s, l)
				}
				s.Every(tt.fault)
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				var left atomic.Pointer[time.Time]
				time.AfterFunc(leaves, func() {
					at := time.Now()
					left.Store(&at)
					cancel()
				})
				e, err := l.Acquire(ctx, key)
				if at := left.Load(); at != nil {
					require.LessOrEqual(t, time.Since(*at), budget/3)
					if err != nil {
						require.ErrorIs(t, err, context.Canceled)
					}
				}
				s.Every(nil)
				_ = e.Release(t.Context())
			})
		}
	}
}

// neverOurs is a server whose answers to claims say that the key is free again.
type neverOurs struct{ lock.Store }

func (neverOurs) Claim(context.Context, string, lock.Claim) (lock.Entry, error) {
	return lock.Entry{}, nil
}
