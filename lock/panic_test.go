package lock_test

import (
	"bytes"
	"context"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/httplatch/httplatch/lock"
)

// What a hook of a store's client panics with is a failure of the one call,
// whichever goroutine that is on: on most there is no caller to recover.
func TestPanicsOfAStoreAreUnknownOutcomes(t *testing.T) {
	panics := map[string]fault{
		"before": func(context.Context, func() error) error { panic("a hook's") },
		"after":  func(_ context.Context, apply func() error) error { _ = apply(); panic("a hook's") },
	}
	for store, as := range map[string]func(*scripted) lock.Store{"apart": apart, "direct": direct} {
		for when, f := range panics {
			name := store + ", " + when + " "
			t.Run(name+"every claim", func(t *testing.T) {
				bubbleOver(t, as, func(t *testing.T, s *scripted, open func(...lock.Option) *lock.Locker) {
					l := open()
					s.every(f, claim)
					_, err := l.Acquire(t.Context(), key)
					require.ErrorIs(t, err, lock.ErrUnknown)
					require.ErrorContains(t, err, "the store panicked: a hook's")
					s.every(nil, claim)
					time.Sleep(time.Minute)
					require.Equal(t, lock.Free, s.state(t, key).State, "it is swept for")
				})
			})
			t.Run(name+"one of each", func(t *testing.T) {
				bubbleOver(t, as, func(t *testing.T, s *scripted, open func(...lock.Option) *lock.Locker) {
					l := open()
					s.next(claim, f).next(renew, f).next(release, f)
					e, err := l.Acquire(t.Context(), key)
					require.NoError(t, err, "the same claim again finds out")
					time.Sleep(3 * lease)
					require.NoError(t, e.Context().Err(), "it is renewed all the same")
					require.Greater(t, s.count(renew), 1)
					require.NoError(t, e.Release(t.Context()))
					require.Equal(t, lock.Free, s.state(t, key).State)
				})
			})
			t.Run(name+"every release", func(t *testing.T) {
				bubbleOver(t, as, func(t *testing.T, s *scripted, open func(...lock.Option) *lock.Locker) {
					e, err := open().Acquire(t.Context(), key)
					require.NoError(t, err)
					s.every(f, release)
					require.ErrorIs(t, e.Release(t.Context()), lock.ErrUnknown)
					time.Sleep(lease / 2)
					s.every(nil, release)
					time.Sleep(lease / 2)
					require.Equal(t, lock.Free, s.state(t, key).State, "it is completed in the background")
				})
			})
			t.Run(name+"every settle", func(t *testing.T) {
				bubbleOver(t, as, func(t *testing.T, s *scripted, open func(...lock.Option) *lock.Locker) {
					e, err := open().Acquire(t.Context(), key)
					require.NoError(t, err)
					s.every(f, settle)
					require.ErrorIs(t, e.Settle(t.Context(), []byte("receipt"), time.Hour), lock.ErrUnknown)
					time.Sleep(lease / 2)
					s.every(nil, settle)
					time.Sleep(lease / 2)
					require.Equal(t, []byte("receipt"), s.state(t, key).Receipt)
					s.forget(t, key)
				})
			})
			t.Run(name+"clean-up", func(t *testing.T) {
				bubbleOver(t, as, func(t *testing.T, s *scripted, open func(...lock.Option) *lock.Locker) {
					l := open()
					s.every(loseReply, claim)
					s.every(f, release)
					_, err := l.Acquire(t.Context(), key)
					require.ErrorIs(t, err, lock.ErrUnknown)
					time.Sleep(time.Second)
					s.every(nil, claim, release)
					time.Sleep(5 * time.Second)
					require.Equal(t, lock.Free, s.state(t, key).State)
				})
			})
			t.Run(name+"get", func(t *testing.T) {
				bubbleOver(t, as, func(t *testing.T, s *scripted, open func(...lock.Option) *lock.Locker) {
					l := open()
					s.every(f, get)
					_, _, err := l.Once(t.Context(), key, []byte("f"), func(context.Context) ([]byte, error) {
						s.forget(t, record) // so that the run that has taken over is looked for
						return []byte("r"), nil
					})
					require.ErrorIs(t, err, lock.ErrLost)
					require.Positive(t, s.count(get))
				})
			})
		}
	}
}

// The place of the panic is logged, and not for each of the calls that run into it.
func TestPanicsOfAStoreAreLoggedOnce(t *testing.T) {
	bubbleOver(t, apart, func(t *testing.T, s *scripted, open func(...lock.Option) *lock.Locker) {
		var log bytes.Buffer
		l := open(lock.WithLogger(slog.New(slog.NewTextHandler(&log, nil))))
		s.every(func(context.Context, func() error) error { panic("a hook's") }, claim)
		for range 10 {
			_, err := l.Acquire(t.Context(), key)
			require.ErrorIs(t, err, lock.ErrUnknown)
		}
		synctest.Wait()
		require.Equal(t, 1, strings.Count(log.String(), "stack="), log.String())
		require.Contains(t, log.String(), "panic_test.go")
	})
}
