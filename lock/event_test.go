package lock_test

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/httplatch/httplatch/internal/testkit/must"
	"github.com/httplatch/httplatch/lock"
	"github.com/httplatch/httplatch/lock/internal/testkit/fault"
	"github.com/httplatch/httplatch/lock/memstore"
)

func TestEventsReportTheWait(t *testing.T) {
	bubble(t, func(t *testing.T, _ *fault.Store, open func(...lock.Option) *lock.Locker) {
		first := open()
		for name, waiter := range map[string]*lock.Locker{"of this process": first, "of another": open()} {
			var seen events
			e := acquired(t, first, key)
			time.AfterFunc(2*time.Second, func() { _ = e.Release(t.Context()) })
			began := time.Now()
			require.NoError(t, waiter.With(lock.WithWait(time.Minute), lock.WithObserver(seen.observe)).Do(t.Context(), key, nothing))
			claimed := seen.only(t, lock.EventClaimed)
			require.Equal(t, time.Since(began), claimed.Took, name)
			require.GreaterOrEqual(t, claimed.Waited, 2*time.Second, name)
			require.LessOrEqual(t, claimed.Waited, claimed.Took, name)
		}
		var seen events
		require.NoError(t, first.With(lock.WithWait(time.Minute), lock.WithObserver(seen.observe)).Do(t.Context(), key, nothing))
		require.Zero(t, seen.only(t, lock.EventClaimed).Waited, "there was nothing to wait for")
		require.Positive(t, seen.only(t, lock.EventReleased).Left)
	})
}

func TestEventsReportReceipts(t *testing.T) {
	bubble(t, func(t *testing.T, _ *fault.Store, open func(...lock.Option) *lock.Locker) {
		var seen events
		l := open(lock.WithObserver(seen.observe))
		for range 2 {
			_, _, err := l.Once(t.Context(), key, nil, func(context.Context) ([]byte, error) { return []byte("answer"), nil })
			require.NoError(t, err)
		}
		settled, replayed := seen.only(t, lock.EventSettled), seen.only(t, lock.EventReplayed)
		require.Equal(t, len("answer"), settled.Size)
		require.True(t, settled.Once)
		require.True(t, replayed.Once)
		require.NoError(t, replayed.Err)
	})
}

// The origin of a claim is returned to a caller that meets its entry.
func TestOriginIsFoundWithTheEntry(t *testing.T) {
	bubble(t, func(t *testing.T, s *fault.Store, open func(...lock.Option) *lock.Locker) {
		type from struct{}
		calls := 0
		origin := lock.WithOrigin(func(ctx context.Context) string {
			calls++
			text, _ := ctx.Value(from{}).(string)
			return text
		})
		of := func(text string) context.Context { return context.WithValue(t.Context(), from{}, text) }
		l := open(origin)
		e, err := l.Acquire(of("trace-1"), key)
		require.NoError(t, err)
		require.True(t, strings.HasSuffix(s.State(t, key).Owner, " trace-1"), s.State(t, key).Owner)
		time.Sleep(lease)
		require.Equal(t, 1, calls, "not for renewals")
		for _, other := range []*lock.Locker{l, open()} {
			var seen events
			err := other.With(lock.WithObserver(seen.observe)).Do(t.Context(), key, nothing)
			var refused *lock.RefusedError
			require.ErrorAs(t, err, &refused)
			require.Equal(t, refused.Entry.Owner, seen.only(t, lock.EventRefused).Owner)
			require.True(t, strings.HasSuffix(refused.Entry.Owner, " trace-1"), refused.Entry.Owner)
		}
		require.NoError(t, e.Release(t.Context()))

		require.NoError(t, l.Do(of(""), key, func(context.Context) error {
			require.NotContains(t, s.State(t, key).Owner, " ", "nothing was said")
			return nil
		}))
		_, _, err = l.Once(of("trace-2"), key, nil, func(context.Context) ([]byte, error) { return nil, nil })
		require.NoError(t, err)
		var seen events
		must.Replay(t)(open(lock.WithObserver(seen.observe)).Once(t.Context(), key, nil, nil))
		require.True(t, strings.HasSuffix(seen.only(t, lock.EventReplayed).Owner, " trace-2"))
	})
}

func TestFailedCallsAreNamed(t *testing.T) {
	for call, faulty := range map[string]fault.Op{"claim": fault.Claim, "renew": fault.Renew, "settle": fault.Settle, "release": fault.Release} {
		bubbleCase(t, call, func(t *testing.T, s *fault.Store, open func(...lock.Option) *lock.Locker) {
			var seen events
			l := open(lock.WithObserver(seen.observe))
			s.Every(fault.Refuse, faulty)
			time.AfterFunc(lease/2, func() { s.Every(nil, faulty) })
			if faulty == fault.Settle {
				_, _, err := l.Once(t.Context(), key, nil, func(context.Context) ([]byte, error) { return nil, nil })
				require.NoError(t, err)
			} else {
				_ = l.Do(t.Context(), key, func(context.Context) error {
					if faulty == fault.Renew {
						time.Sleep(lease/3 + budget + time.Millisecond)
					}
					return nil
				})
			}
			require.Equal(t, call, seen.only(t, lock.EventUnavailable).Call)
		})
	}
}

// A note of an effect that the store refuses at once says how long that took.
func TestFailedNoteHasItsTime(t *testing.T) {
	bubble(t, func(t *testing.T, s *fault.Store, open func(...lock.Option) *lock.Locker) {
		var seen events
		l := open(lock.WithObserver(seen.observe), lock.WithRerunAbandoned())
		began := time.Now()
		_, _, err := l.Once(t.Context(), key, nil, func(ctx context.Context) ([]byte, error) {
			s.Every(fault.Refuse, fault.Renew)
			return nil, lock.Commit(ctx)
		})
		require.ErrorIs(t, err, lock.ErrUnavailable)
		require.Equal(t, time.Since(began), seen.only(t, lock.EventUnavailable).Took)
	})
}

// A package that refuses by itself has observers notified.
func TestReport(t *testing.T) {
	var seen events
	l := lock.New(memstore.New(), lock.WithObserver(seen.observe), lock.WithLogger(quiet))
	want := lock.Event{Kind: lock.EventRejected, Name: "user", Err: errors.New("no key")}
	l.Report(t.Context(), want)
	require.Equal(t, want, seen.only(t, lock.EventRejected))
}

func nothing(context.Context) error { return nil }

// Every way to lose a lease has its own class, for metrics.
func TestLossesHaveClasses(t *testing.T) {
	for class, lose := range map[string]func(t *testing.T, s *fault.Store){
		"taken":    func(t *testing.T, s *fault.Store) { t.Helper(); s.Free(t, key) },
		"expired":  func(_ *testing.T, s *fault.Store) { s.Every(fault.HangRequest, fault.Renew) },
		"max_hold": func(*testing.T, *fault.Store) {},
	} {
		bubbleCase(t, class, func(t *testing.T, s *fault.Store, open func(...lock.Option) *lock.Locker) {
			var seen events
			l := open(lock.WithObserver(seen.observe), lock.WithMaxHold(10*time.Second))
			err := l.Do(t.Context(), key, func(ctx context.Context) error {
				lose(t, s)
				<-ctx.Done()
				return nil
			})
			require.ErrorIs(t, err, lock.ErrLost)
			synctest.Wait()
			var classified interface{ Class() string }
			require.ErrorAs(t, seen.only(t, lock.EventLost).Err, &classified)
			require.Equal(t, class, classified.Class())
		})
	}
}

// events collects what Lockers report.
type events struct {
	mu   sync.Mutex
	seen []lock.Event
}

func (v *events) observe(_ context.Context, e lock.Event) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.seen = append(v.seen, e)
}

// of returns the events of a kind.
func (v *events) of(kind lock.EventKind) (found []lock.Event) {
	v.mu.Lock()
	defer v.mu.Unlock()
	for _, e := range v.seen {
		if e.Kind == kind {
			found = append(found, e)
		}
	}
	return found
}

func (v *events) count(kind lock.EventKind) int { return len(v.of(kind)) }

// keys returns the keys of the events of a kind.
func (v *events) keys(kind lock.EventKind) (keys []string) {
	for _, e := range v.of(kind) {
		keys = append(keys, e.Key)
	}
	return keys
}

// only returns the one event of a kind.
func (v *events) only(t *testing.T, kind lock.EventKind) lock.Event {
	t.Helper()
	found := v.of(kind)
	require.Len(t, found, 1, "%s", kind)
	return found[0]
}

func TestObserverCannotBreakARequest(t *testing.T) {
	bubble(t, func(t *testing.T, _ *fault.Store, open func(...lock.Option) *lock.Locker) {
		var out bytes.Buffer
		var seen events
		l := open(
			lock.WithLogger(slog.New(slog.NewTextHandler(&out, nil))),
			lock.WithObserver(func(context.Context, lock.Event) { panic("observer") }),
			lock.WithObserver(seen.observe),
		)
		require.NoError(t, l.Do(t.Context(), key, func(context.Context) error { return nil }))
		require.Equal(t, 1, seen.count(lock.EventClaimed))
		require.Equal(t, 1, seen.count(lock.EventReleased))
		require.Contains(t, out.String(), "panic")
		require.Equal(t, "user", seen.seen[0].Name)
		require.Equal(t, key, seen.seen[0].Key)
	})
}
