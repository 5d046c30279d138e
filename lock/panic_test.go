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

	"github.com/httplatch/httplatch/internal/testkit/must"
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
	for name, meet := range map[string]func(t *testing.T, s *fault.Store, l *lock.Locker, f fault.Func){
		"every claim": func(t *testing.T, s *fault.Store, l *lock.Locker, f fault.Func) {
			s.Every(f, fault.Claim)
			_, err := l.Acquire(t.Context(), key)
			require.ErrorIs(t, err, lock.ErrUnknown)
			require.ErrorContains(t, err, "the store panicked: a hook's")
			s.Every(nil, fault.Claim)
			time.Sleep(time.Minute)
			requireFree(t, s, key)
		},
		"one of each": func(t *testing.T, s *fault.Store, l *lock.Locker, f fault.Func) {
			s.Next(fault.Claim, f).Next(fault.Renew, f).Next(fault.Release, f)
			e := acquired(t, l, key) // the same claim again finds out
			time.Sleep(3 * lease)
			require.NoError(t, e.Context().Err(), "it is renewed all the same")
			require.Greater(t, s.Count(fault.Renew), 1)
			require.NoError(t, e.Release(t.Context()))
			requireFree(t, s, key)
		},
		"every release": func(t *testing.T, s *fault.Store, l *lock.Locker, f fault.Func) {
			e := acquired(t, l, key)
			s.Every(f, fault.Release)
			require.ErrorIs(t, e.Release(t.Context()), lock.ErrUnknown)
			time.Sleep(lease / 2)
			s.Every(nil, fault.Release)
			time.Sleep(lease / 2)
			requireFree(t, s, key) // it is completed in the background
		},
		"every settle": func(t *testing.T, s *fault.Store, l *lock.Locker, f fault.Func) {
			e := acquired(t, l, key)
			s.Every(f, fault.Settle)
			require.ErrorIs(t, e.Settle(t.Context(), []byte("receipt"), time.Hour), lock.ErrUnknown)
			time.Sleep(lease / 2)
			s.Every(nil, fault.Settle)
			time.Sleep(lease / 2)
			require.Equal(t, []byte("receipt"), s.State(t, key).Receipt)
		},
		"clean-up": func(t *testing.T, s *fault.Store, l *lock.Locker, f fault.Func) {
			s.Every(fault.LoseReply, fault.Claim).Every(f, fault.Release)
			require.ErrorIs(t, l.Do(t.Context(), key, nil), lock.ErrUnknown)
			time.Sleep(time.Second)
			s.Every(nil, fault.Claim, fault.Release)
			time.Sleep(5 * time.Second)
			requireFree(t, s, key)
		},
		"get": func(t *testing.T, s *fault.Store, l *lock.Locker, f fault.Func) {
			s.Every(f, fault.Get)
			_, _, err := l.Once(t.Context(), key, []byte("f"), func(context.Context) ([]byte, error) {
				s.Free(t, record) // so that the run that has taken over is looked for
				s.Every(denied, fault.Claim)
				return []byte("r"), nil
			})
			require.ErrorIs(t, err, lock.ErrLost)
			require.Positive(t, s.Count(fault.Get))
		},
	} {
		for store, as := range map[string]func(*fault.Store) lock.Store{"apart": apart, "direct": direct} {
			for when, f := range panics {
				bubbleOverCase(t, store+", "+when+" "+name, as, func(t *testing.T, s *fault.Store, open func(...lock.Option) *lock.Locker) {
					meet(t, s, open(), f)
				})
			}
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
			require.ErrorIs(t, l.Do(t.Context(), key, nil), lock.ErrUnknown)
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
		s.Every(f, fault.Get) // the look for a receipt before the claim, and for that of the run that has taken over
		_, _, err = open(lock.WithKeep(keep)).Once(t.Context(), key, nil, func(context.Context) ([]byte, error) {
			s.Free(t, record)
			s.Every(denied, fault.Claim)
			return nil, nil
		})
		require.ErrorIs(t, err, lock.ErrLost)
	})
}

// no-leak: code of others that panics in the middle of a call leaves no key behind, and the call goes
// on: an observer, a logger, and the function of WithOrigin.
func TestPanicsOfHooksCostNoKey(t *testing.T) {
	for name, opt := range map[string]lock.Option{
		"an observer": lock.WithObserver(func(context.Context, lock.Event) { panic("an observer's") }),
		"a logger":    lock.WithLogger(slog.New(panickingHandler{slog.DiscardHandler}).With("a", "b").WithGroup("c")),
		"an origin":   lock.WithOrigin(func(context.Context) string { panic("an origin's") }),
	} {
		bubbleCase(t, name, func(t *testing.T, s *fault.Store, open func(...lock.Option) *lock.Locker) {
			l := open(opt, lock.WithKeep(time.Second))
			works := nothing
			require.NoError(t, l.Do(t.Context(), key, works))
			require.NoError(t, l.DoAll(t.Context(), setKeys, works))
			must.Run(t)(l.Once(t.Context(), key, print1, func(context.Context) ([]byte, error) { return nil, nil }))
			s.Next(fault.Release, fault.Refuse)
			require.NoError(t, l.Do(t.Context(), key, works), "an end without an answer")
			set := acquiredAll(t, l)
			s.Free(t, setKeys[0])
			require.ErrorIs(t, set.Release(t.Context()), lock.ErrLost)
			e := acquired(t, l, key)
			ticket := handedOver(t, e, time.Minute)
			e = resumed(t, l, ticket)
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
