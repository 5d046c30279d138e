package lock_test

import (
	"context"
	"runtime"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/httplatch/httplatch/lock"
	"github.com/httplatch/httplatch/lock/internal/fault"
)

func goexit(_ context.Context, apply func() error) error { _ = apply(); runtime.Goexit(); return nil }

// Whatever becomes of the renewal with which a lost takeover is gone on with, the next
// call of this process is not refused for it.
func TestFaultsOfGoingOnWithALostTakeover(t *testing.T) {
	for name, f := range map[string][]fault.Func{
		"renew lost all":  {fault.LoseReply, fault.LoseReply, fault.LoseReply, fault.LoseReply, fault.LoseReply, fault.LoseReply, fault.LoseReply, fault.LoseReply},
		"renew hangs":     {fault.HangReply, fault.HangReply},
		"renew req hangs": {fault.HangRequest, fault.HangRequest},
		"renew refused":   {fault.Refuse, fault.Refuse, fault.Refuse, fault.Refuse, fault.Refuse, fault.Refuse, fault.Refuse, fault.Refuse},
		"renew late":      {fault.Late(lease / 2), fault.Late(lease)},
		"renew goexit":    {goexit},
		"renew denied":    {denied},
		"entry gone":      {func(context.Context, func() error) error { return nil }},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, s *fault.Store, open func(...lock.Option) *lock.Locker) {
				var f1 effect
				opts := []lock.Option{lock.WithKeep(10 * time.Second), lock.WithRerunAbandoned()}
				crash(t, s, func(context.Context) {}, opts...)
				time.Sleep(lease)
				l := open(opts...)
				s.Next(fault.Claim, nil, fault.HangReply, fault.HangReply)
				_, _, err := l.Once(t.Context(), key, print1, f1.run("a"))
				require.ErrorIs(t, err, lock.ErrUnknown)
				s.Next(fault.Renew, f...)
				done := make(chan error, 1)
				go func() {
					err := context.Canceled
					defer func() { done <- err }()
					_, _, err = l.With(lock.WithLease(2*lease), lock.WithBudget(budget/2)).Once(context.Background(), key, print1, f1.run("b"))
				}()
				err = <-done
				s.Skip(fault.Renew)
				if err == nil {
					return
				}
				_, _, err = l.Once(t.Context(), key, print1, func(ctx context.Context) ([]byte, error) {
					require.Equal(t, 2, lock.Attempt(ctx))
					return []byte("c"), nil
				})
				require.NoError(t, err, "no-self-conflict")
				time.Sleep(time.Minute)
				require.Zero(t, l.Stats().Backlog)
				require.Zero(t, l.Stats().Active)
			})
		})
	}
}

// A hook of a store that ends the goroutine, on every call of one kind.
func TestStoreEndsTheGoroutine(t *testing.T) {
	for _, o := range []fault.Op{fault.Claim, fault.Renew, fault.Settle, fault.Release, fault.Get} {
		for _, as := range []func(*fault.Store) lock.Store{direct, apart} {
			bubbleOver(t, as, func(t *testing.T, s *fault.Store, open func(...lock.Option) *lock.Locker) {
				l := open(lock.WithKeep(10 * time.Second))
				s.Every(goexit, o)
				for range 5 {
					done := make(chan struct{})
					go func() {
						defer close(done)
						_ = l.Do(context.Background(), key, func(context.Context) error { time.Sleep(lease); return nil })
					}()
					<-done
					done = make(chan struct{})
					go func() {
						defer close(done)
						_, _, _ = l.Once(context.Background(), key, print1, func(context.Context) ([]byte, error) { time.Sleep(lease); return nil, nil })
					}()
					<-done
					time.Sleep(time.Second)
				}
				s.Every(nil, o)
				time.Sleep(10 * time.Minute)
				require.Zero(t, l.Stats().Active, string(o))
				require.Zero(t, l.Stats().Backlog, string(o))
				require.NoError(t, l.Do(t.Context(), key, func(context.Context) error { return nil }))
			})
		}
	}
}
