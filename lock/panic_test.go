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
	"github.com/httplatch/httplatch/lock/internal/testkit/fault"
)

// A panic in a hook of a store's client is a failure of one call, on any
// goroutine: on most goroutines there is no caller to recover.
func TestPanicsOfAStoreAreUnknownOutcomes(t *testing.T) {
	panics := map[string]fault.Func{
		"before": func(context.Context, func() error) error { panic("a hook's") },
		"after":  func(_ context.Context, apply func() error) error { _ = apply(); panic("a hook's") },
	}
	for store, as := range map[string]func(*fault.Store) lock.Store{"apart": apart, "direct": direct} {
		for when, f := range panics {
			name := store + ", " + when + " "
			bubbleOverCase(t, name+"every claim", as, func(t *testing.T, s *fault.Store, open func(...lock.Option) *lock.Locker) {
				l := open()
				s.Every(f, fault.Claim)
				_, err := l.Acquire(t.Context(), key)
				require.ErrorIs(t, err, lock.ErrUnknown)
				require.ErrorContains(t, err, "the store panicked: a hook's")
				s.Every(nil, fault.Claim)
				time.Sleep(time.Minute)
				require.Equal(t, lock.Free, s.State(t, key).State, "it is cleaned up")
			})
			bubbleOverCase(t, name+"one of each", as, func(t *testing.T, s *fault.Store, open func(...lock.Option) *lock.Locker) {
				l := open()
				s.Next(fault.Claim, f).Next(fault.Renew, f).Next(fault.Release, f)
				e, err := l.Acquire(t.Context(), key)
				require.NoError(t, err, "the same claim again finds out")
				time.Sleep(3 * lease)
				require.NoError(t, e.Context().Err(), "it is renewed all the same")
				require.Greater(t, s.Count(fault.Renew), 1)
				require.NoError(t, e.Release(t.Context()))
				require.Equal(t, lock.Free, s.State(t, key).State)
			})
			bubbleOverCase(t, name+"every release", as, func(t *testing.T, s *fault.Store, open func(...lock.Option) *lock.Locker) {
				e := acquired(t, open(), key)
				s.Every(f, fault.Release)
				require.ErrorIs(t, e.Release(t.Context()), lock.ErrUnknown)
				time.Sleep(lease / 2)
				s.Every(nil, fault.Release)
				time.Sleep(lease / 2)
				require.Equal(t, lock.Free, s.State(t, key).State, "it is completed in the background")
			})
			bubbleOverCase(t, name+"every settle", as, func(t *testing.T, s *fault.Store, open func(...lock.Option) *lock.Locker) {
				e := acquired(t, open(), key)
				s.Every(f, fault.Settle)
				require.ErrorIs(t, e.Settle(t.Context(), []byte("receipt"), time.Hour), lock.ErrUnknown)
				time.Sleep(lease / 2)
				s.Every(nil, fault.Settle)
				time.Sleep(lease / 2)
				require.Equal(t, []byte("receipt"), s.State(t, key).Receipt)
				s.Free(t, key)
			})
			bubbleOverCase(t, name+"clean-up", as, func(t *testing.T, s *fault.Store, open func(...lock.Option) *lock.Locker) {
				l := open()
				s.Every(fault.LoseReply, fault.Claim)
				s.Every(f, fault.Release)
				_, err := l.Acquire(t.Context(), key)
				require.ErrorIs(t, err, lock.ErrUnknown)
				time.Sleep(time.Second)
				s.Every(nil, fault.Claim, fault.Release)
				time.Sleep(5 * time.Second)
				require.Equal(t, lock.Free, s.State(t, key).State)
			})
			bubbleOverCase(t, name+"get", as, func(t *testing.T, s *fault.Store, open func(...lock.Option) *lock.Locker) {
				l := open()
				s.Every(f, fault.Get)
				_, _, err := l.Once(t.Context(), key, []byte("f"), func(context.Context) ([]byte, error) {
					s.Free(t, record) // so that the run that has taken over is looked for
					return []byte("r"), nil
				})
				require.ErrorIs(t, err, lock.ErrLost)
				require.Positive(t, s.Count(fault.Get))
			})
		}
	}
}

// The place of the panic is logged, and not for each of the calls that run into it.
func TestPanicsOfAStoreAreLoggedOnce(t *testing.T) {
	bubbleOver(t, apart, func(t *testing.T, s *fault.Store, open func(...lock.Option) *lock.Locker) {
		var log bytes.Buffer
		l := open(lock.WithLogger(slog.New(slog.NewTextHandler(&log, nil))))
		s.Every(func(context.Context, func() error) error { panic("a hook's") }, fault.Claim)
		for range 10 {
			_, err := l.Acquire(t.Context(), key)
			require.ErrorIs(t, err, lock.ErrUnknown)
		}
		synctest.Wait()
		require.Equal(t, 1, strings.Count(log.String(), "stack="), log.String())
		require.Contains(t, log.String(), "panic_test.go")
	})
}

// A store in this process can run code of others, too: an AEAD of package sealed.
type inProcess struct{ *fault.Store }

func (inProcess) Describe() lock.Description { return lock.Description{Local: true} }

func TestPanicsOfAStoreInThisProcess(t *testing.T) {
	f := func(context.Context, func() error) error { panic("an AEAD's") }
	bubbleOver(t, func(s *fault.Store) lock.Store { return inProcess{s} }, func(t *testing.T, s *fault.Store, open func(...lock.Option) *lock.Locker) {
		e := acquired(t, open(), key)
		s.Next(fault.Renew, f)
		time.Sleep(2 * lease)
		require.NoError(t, e.Context().Err(), "it is renewed all the same")
		s.Every(f, fault.Settle)
		err := e.Settle(t.Context(), []byte("receipt"), time.Hour)
		require.ErrorIs(t, err, lock.ErrUnavailable)
		require.ErrorContains(t, err, "the store panicked: an AEAD's")
		time.Sleep(lease)
		require.Greater(t, s.Count(fault.Settle), 2, "it is repeated in the background")
		s.Every(nil, fault.Settle)
		time.Sleep(lease)
		require.Equal(t, []byte("receipt"), s.State(t, key).Receipt)
		s.Free(t, key)
	})
}

// no-leak: code of others that panics in the middle of a call leaves no key behind, and the call goes
// on: an observer, a logger, and the function of WithOrigin.
func TestPanicsOfHooksCostNoKey(t *testing.T) {
	t.Parallel()
	for name, opt := range map[string]lock.Option{
		"an observer": lock.WithObserver(func(context.Context, lock.Event) { panic("an observer's") }),
		"a logger":    lock.WithLogger(slog.New(panickingHandler{slog.DiscardHandler}).With("a", "b").WithGroup("c")),
		"an origin":   lock.WithOrigin(func(context.Context) string { panic("an origin's") }),
	} {
		bubbleCase(t, name, func(t *testing.T, s *fault.Store, open func(...lock.Option) *lock.Locker) {
			l := open(opt, lock.WithKeep(time.Second))
			works := func(context.Context) error { return nil }
			require.NoError(t, l.Do(t.Context(), key, works))
			require.NoError(t, l.DoAll(t.Context(), setKeys, works))
			_, _, err := l.Once(t.Context(), key, print1, func(context.Context) ([]byte, error) { return nil, nil })
			require.NoError(t, err)
			s.Next(fault.Release, fault.Refuse)
			require.NoError(t, l.Do(t.Context(), key, works), "an end without an answer")
			set, err := l.AcquireAll(t.Context(), setKeys)
			require.NoError(t, err)
			s.Free(t, setKeys[0])
			require.ErrorIs(t, set.Release(t.Context()), lock.ErrLost)
			e := acquired(t, l, key)
			ticket, err := e.HandOver(t.Context(), time.Minute)
			require.NoError(t, err)
			e, err = l.Resume(t.Context(), ticket)
			require.NoError(t, err)
			require.NoError(t, e.Release(t.Context()))
			time.Sleep(time.Minute)
			require.Zero(t, busy(l))
			requireFree(t, s, append(setKeys, key)...)
		})
	}
}

type panickingHandler struct{ slog.Handler }

func (panickingHandler) Enabled(context.Context, slog.Level) bool { return true }

func (panickingHandler) Handle(_ context.Context, r slog.Record) error { panic(r.Message) }

func (h panickingHandler) WithAttrs([]slog.Attr) slog.Handler { return h }

func (h panickingHandler) WithGroup(string) slog.Handler { return h }

// onItsOwn runs call on a goroutine, and returns when it has returned, panicked or ended the goroutine.
func onItsOwn(call func()) {
	over := make(chan struct{})
	go func() {
		defer close(over)
		defer func() { _ = recover() }()
		call()
	}()
	<-over
}
