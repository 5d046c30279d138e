package lock_test

import (
	"bytes"
	"context"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/httplatch/httplatch/internal/testkit/must"
	"github.com/httplatch/httplatch/lock"
	"github.com/httplatch/httplatch/lock/internal/testkit/fault"
)

func TestEventsReportTheWait(t *testing.T) {
	bubble(t, func(t *testing.T, _ *fault.Store, open func(...lock.Option) *lock.Locker) {
		first, other := open(), open()
		claim := func(l *lock.Locker, of string) (claimed, released lock.Event, took time.Duration) {
			var seen events
			began := time.Now()
			require.NoError(t, contenders[of](t.Context(), l.With(lock.WithWait(time.Minute), lock.WithObserver(seen.observe)), nothing))
			return seen.only(t, lock.EventClaimed), seen.only(t, lock.EventReleased), time.Since(began)
		}
		for _, of := range []string{"a key", "a permit"} {
			for _, waiter := range []*lock.Locker{first, other} {
				e := acquired(t, first, key)
				time.AfterFunc(2*time.Second, func() { _ = e.Release(t.Context()) })
				claimed, _, took := claim(waiter, of)
				require.Equal(t, took, claimed.Took, of)
				require.GreaterOrEqual(t, claimed.Waited, 2*time.Second, of)
				require.LessOrEqual(t, claimed.Waited, claimed.Took, of)
			}
			claimed, released, _ := claim(first, of)
			require.Zero(t, claimed.Waited, "there was nothing to wait for")
			require.Positive(t, released.Left)
		}
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
		e := must.Get(l.Acquire(of("trace-1"), key))(t)
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
		must.Run(t)(l.Once(of("trace-2"), key, nil, func(context.Context) ([]byte, error) { return nil, nil }))
		var seen events
		must.Replay(t)(open(lock.WithObserver(seen.observe)).Once(t.Context(), key, nil, nil))
		require.True(t, strings.HasSuffix(seen.only(t, lock.EventReplayed).Owner, " trace-2"))
	})
}

// A note of an effect that the store refuses at once says how long that took.
func TestFailedNoteHasItsTime(t *testing.T) {
	observed(t, func(t *testing.T, s *fault.Store, l *lock.Locker, seen *events) {
		began := time.Now()
		_, _, err := l.Once(t.Context(), key, nil, func(ctx context.Context) ([]byte, error) {
			s.Every(fault.Refuse, fault.Renew)
			return nil, lock.Commit(ctx)
		})
		require.ErrorIs(t, err, lock.ErrUnavailable)
		require.Equal(t, time.Since(began), seen.only(t, lock.EventUnavailable).Took)
	}, lock.WithRerunAbandoned())
}

func nothing(context.Context) error { return nil }

// observed is solo for a test that looks at the events of its Locker.
func observed(t *testing.T, run func(t *testing.T, s *fault.Store, l *lock.Locker, seen *events), opts ...lock.Option) {
	t.Helper()
	bubble(t, func(t *testing.T, s *fault.Store, open func(...lock.Option) *lock.Locker) {
		t.Helper()
		var seen events
		run(t, s, open(append(opts, lock.WithObserver(seen.observe))...), &seen)
	})
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
