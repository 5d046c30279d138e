package lock_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/httplatch/httplatch/lock"
	"github.com/httplatch/httplatch/lock/internal/testkit/fault"
)

func TestSetIsClaimedAtOnce(t *testing.T) {
	bubble(t, func(t *testing.T, s *fault.Store, open func(...lock.Option) *lock.Locker) {
		l, other := open(), open()
		require.NoError(t, l.DoAll(t.Context(), []string{"item=3", "item=1", "item=2", "item=1"}, func(ctx context.Context) error {
			set, _ := lock.SetFromContext(ctx)
			require.Equal(t, setKeys, set.Keys())
			tokens := make(map[string]bool)
			for _, key := range setKeys {
				e := s.State(t, key)
				require.Equal(t, lock.Held, e.State)
				tokens[e.Token] = true
			}
			require.Len(t, tokens, len(setKeys), "each key has a token of its own")
			require.ErrorIs(t, other.DoAll(ctx, setKeys[1:], nil), lock.ErrHeld)
			return nil
		}))
		require.Equal(t, 2, s.Count(fault.Claim))
		require.Equal(t, 3, s.Count(fault.Release))
		requireFree(t, s, setKeys...)
	})
}

func TestSetIsClaimedInOrder(t *testing.T) {
	for name, tt := range map[string]struct {
		opts     []lock.Option
		held     string // by another process
		claims   int
		releases int
	}{
		"with fences":            {opts: []lock.Option{lock.WithFencing()}, claims: 3, releases: 3},
		"that fails open":        {opts: []lock.Option{lock.WithFailOpen()}, claims: 3, releases: 3},
		"after a holder was met": {opts: []lock.Option{lock.WithWait(time.Minute)}, held: setKeys[2], claims: 1 + 1 + 3 + 1, releases: 1 + 3},
	} {
		bubbleOverCase(t, name, direct, func(t *testing.T, s *fault.Store, open func(...lock.Option) *lock.Locker) {
			l, other := open(tt.opts...), open()
			if tt.held != "" {
				lease := acquired(t, other, tt.held)
				time.AfterFunc(time.Millisecond, func() { _ = lease.Release(context.Background()) })
			}
			require.NoError(t, l.DoAll(t.Context(), setKeys, func(ctx context.Context) error { return ctx.Err() }))
			require.Equal(t, tt.claims, s.Count(fault.Claim))
			require.Equal(t, tt.releases, s.Count(fault.Release))
			requireFree(t, s, setKeys...)
		})
	}
}

func TestSetWithAKeyOfThisProcessIsRefusedWithoutACall(t *testing.T) {
	observed(t, func(t *testing.T, s *fault.Store, l *lock.Locker, seen *events) {
		require.NoError(t, l.Do(t.Context(), setKeys[2], func(ctx context.Context) error {
			before := s.Count(fault.Claim)
			err := l.DoAll(ctx, setKeys, nil)
			var held *lock.RefusedError
			require.ErrorAs(t, err, &held)
			require.ErrorIs(t, err, lock.ErrHeld)
			require.Equal(t, setKeys[2], held.Entry.Key)
			require.NotEmpty(t, held.Entry.Owner)
			require.Equal(t, before, s.Count(fault.Claim))
			return nil
		}))
		require.Equal(t, setKeys[2:], seen.keys(lock.EventRefused))
		require.NoError(t, l.DoAll(t.Context(), setKeys, nothing))
	})
}

// The answer to the claim of a set is lost. Its tokens recover all keys.
func TestLostReplyToTheClaimOfASet(t *testing.T) {
	for name, f := range map[string]fault.Func{"applied": fault.LoseReply, "not applied": fault.LoseRequest} {
		bubbleCase(t, name, func(t *testing.T, s *fault.Store, open func(...lock.Option) *lock.Locker) {
			var seen events
			l := open(lock.WithObserver(seen.observe))
			s.Next(fault.Claim, f)
			require.NoError(t, l.DoAll(t.Context(), setKeys, func(ctx context.Context) error { return ctx.Err() }))
			require.Equal(t, setKeys, seen.keys(lock.EventRecovered))
			require.Equal(t, 2, s.Count(fault.Claim))
			requireFree(t, s, setKeys...)
		})
	}
}

func TestReleaseOfASet(t *testing.T) {
	for name, tt := range map[string]struct {
		removed  string // by an operator, before the release
		releases int
		want     error
	}{
		"answered":               {releases: 3},
		"one key was taken away": {removed: setKeys[1], releases: 4, want: lock.ErrLost}, // and one removal of an entry that may remain
	} {
		bubbleOverCase(t, name, direct, func(t *testing.T, s *fault.Store, open func(...lock.Option) *lock.Locker) {
			set := acquiredAll(t, open())
			if tt.removed != "" {
				s.Free(t, tt.removed)
			}
			require.ErrorIs(t, set.Release(t.Context()), tt.want)
			require.NoError(t, set.Release(t.Context()), "the second call does nothing")
			time.Sleep(2 * lease)
			require.ErrorIs(t, set.Context().Err(), context.Canceled)
			require.Equal(t, tt.releases, s.Count(fault.Release))
			requireFree(t, s, setKeys...)
		})
	}
}

// A caller of the same process meets the claim of a set that is pending, and gets its outcome for
// the caller's own key only.
func TestCallerThatMeetsThePendingClaimOfASet(t *testing.T) {
	for name, tt := range map[string]struct {
		held string // by another process
		of   string // the key that the caller wants
		want error
	}{
		"granted":                {of: setKeys[0], want: lock.ErrHeld},
		"refused by this key":    {held: setKeys[1], of: setKeys[1], want: lock.ErrHeld},
		"refused by another key": {held: setKeys[1], of: setKeys[0]},
	} {
		bubbleCase(t, name, func(t *testing.T, s *fault.Store, open func(...lock.Option) *lock.Locker) {
			l, other := open(), open()
			if tt.held != "" {
				lease := acquired(t, other, tt.held)
				defer func() { require.NoError(t, lease.Release(t.Context())) }()
			}
			s.Next(fault.Claim, fault.Slow(50*time.Millisecond))
			done := make(chan error)
			go func() {
				done <- l.DoAll(t.Context(), setKeys, func(context.Context) error { time.Sleep(time.Second); return nil })
			}()
			time.Sleep(time.Millisecond)
			began := time.Now()
			err := l.Do(t.Context(), tt.of, nothing)
			require.ErrorIs(t, err, tt.want)
			require.Less(t, time.Since(began), time.Second)
			err = <-done
			require.Equal(t, tt.held != "", errors.Is(err, lock.ErrHeld))
		})
	}
}
