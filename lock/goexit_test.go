package lock_test

import (
	"context"
	"runtime"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/httplatch/httplatch/lock"
	"github.com/httplatch/httplatch/lock/internal/fault"
)

// onItsOwn runs call on a goroutine, and reports whether it returned, and did not
// panic or end the goroutine.
func onItsOwn(call func()) (returned bool) {
	over := make(chan struct{})
	go func() {
		defer close(over)
		defer func() { _ = recover() }()
		call()
		returned = true
	}()
	<-over
	return returned
}

// The first send of a call is on the caller's goroutine if the store returns in time. A hook that
// ends this goroutine, as require does in a test, ends the caller, too. It must not leave the key
// taken, or a lease in the Locker's tables.
func TestHooksThatEndTheCaller(t *testing.T) {
	before := func(context.Context, func() error) error { runtime.Goexit(); return nil }
	after := func(_ context.Context, apply func() error) error { _ = apply(); runtime.Goexit(); return nil }
	for when, f := range map[string]fault.Func{"before": before, "after": after} {
		t.Run(when+" a claim", func(t *testing.T) {
			bubbleOver(t, direct, func(t *testing.T, s *fault.Store, open func(...lock.Option) *lock.Locker) {
				l := open()
				s.Next(fault.Claim, f)
				require.False(t, onItsOwn(func() { _, _ = l.Acquire(t.Context(), key) }))
				synctest.Wait()
				require.Equal(t, lock.Free, s.State(t, key).State, "it is cleaned up")
				e, err := l.Acquire(t.Context(), key)
				require.NoError(t, err)
				require.NoError(t, e.Release(t.Context()))
			})
		})
		t.Run(when+" a release", func(t *testing.T) {
			bubbleOver(t, direct, func(t *testing.T, s *fault.Store, open func(...lock.Option) *lock.Locker) {
				var seen events
				l := open(lock.WithObserver(seen.observe))
				s.Next(fault.Release, f)
				require.False(t, onItsOwn(func() { _ = l.Do(t.Context(), key, func(context.Context) error { return nil }) }))
				synctest.Wait()
				require.Equal(t, lock.Free, s.State(t, key).State, "it is completed in the background")
				require.Equal(t, 1, seen.count(lock.EventReleased))
				require.Zero(t, seen.count(lock.EventLost), "what it finds done, it did")
				e, err := l.Acquire(t.Context(), key)
				require.NoError(t, err, "and does not shut the key in this process")
				require.NoError(t, e.Release(t.Context()))
			})
		})
		t.Run(when+" a settle", func(t *testing.T) {
			bubbleOver(t, direct, func(t *testing.T, s *fault.Store, open func(...lock.Option) *lock.Locker) {
				l := open()
				e, err := l.Acquire(t.Context(), key)
				require.NoError(t, err)
				s.Next(fault.Settle, f)
				receipt := []byte("receipt")
				require.False(t, onItsOwn(func() { _ = e.Settle(t.Context(), receipt, time.Hour) }))
				clear(receipt)
				synctest.Wait()
				require.Equal(t, []byte("receipt"), s.State(t, key).Receipt)
				s.Free(t, key)
			})
		})
	}
}

// Where no hook can end the caller, it returns. So the tests above show whose
// goroutine it is.
func TestHooksThatEndAGoroutineOfItsOwn(t *testing.T) {
	exit := func(context.Context, func() error) error { runtime.Goexit(); return nil }
	bubbleOver(t, apart, func(t *testing.T, s *fault.Store, open func(...lock.Option) *lock.Locker) {
		l := open()
		s.Next(fault.Claim, exit)
		s.Next(fault.Release, exit)
		began := time.Now()
		require.True(t, onItsOwn(func() {
			assert.NoError(t, l.Do(t.Context(), key, func(context.Context) error { return nil }))
		}))
		require.Less(t, time.Since(began), budget/3, "its end is a failure, and is not waited for")
	})
}

// Background work goes on after its goroutine was ended.
func TestHooksThatEndTheBackground(t *testing.T) {
	exit := func(context.Context, func() error) error { runtime.Goexit(); return nil }
	for name, as := range map[string]func(*fault.Store) lock.Store{"apart": apart, "direct": direct} {
		t.Run(name, func(t *testing.T) {
			bubbleOver(t, as, func(t *testing.T, s *fault.Store, open func(...lock.Option) *lock.Locker) {
				const keys = 100 // more than run at once
				l := open()
				for i := range keys {
					s.Next(fault.Claim, fault.Late(time.Second), fault.LoseReply)
					s.Next(fault.Release, exit)
					ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
					_, err := l.Acquire(ctx, lock.Key("k", string(rune('a'+i))))
					require.ErrorIs(t, err, lock.ErrUnknown)
					cancel()
					s.Every(nil, fault.Claim)
				}
				time.Sleep(10 * time.Second)
				for i := range keys {
					require.Equal(t, lock.Free, s.State(t, lock.Key("k", string(rune('a'+i)))).State)
				}
			})
			bubbleOver(t, as, func(t *testing.T, s *fault.Store, open func(...lock.Option) *lock.Locker) {
				e, err := open().Acquire(t.Context(), key)
				require.NoError(t, err)
				s.Next(fault.Renew, exit)
				time.Sleep(3 * lease)
				require.NoError(t, e.Context().Err())
				require.NoError(t, e.Release(t.Context()))
			})
		})
	}
}

func goexit(_ context.Context, apply func() error) error { _ = apply(); runtime.Goexit(); return nil }

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
