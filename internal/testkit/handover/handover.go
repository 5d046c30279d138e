// Package handover has the test of hand-overs for stores over real servers and files.
package handover

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/httplatch/httplatch/lock"
)

// Test hands a key over from one process to another while a caller waits for it, with and without
// fences. open returns a store like the store of another process, which is closed at the end of the
// test.
func Test(t *testing.T, open func(t *testing.T) lock.Store) {
	t.Helper()
	for name, opts := range map[string][]lock.Option{"plain": nil, "fenced": {lock.WithFencing()}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			key := lock.Key("handover", t.Name())
			process := func(more ...lock.Option) *lock.Locker {
				l := lock.New(open(t), append(more, opts...)...)
				t.Cleanup(func() { require.NoError(t, l.Close(context.WithoutCancel(t.Context()))) })
				return l
			}
			web, worker := process(), process(lock.WithWait(10*time.Second))
			e, err := web.Acquire(t.Context(), key)
			require.NoError(t, err)
			before, _ := e.Fence()
			ticket, err := e.HandOver(t.Context(), time.Minute)
			require.NoError(t, err)

			waited := make(chan error, 1)
			go func() {
				waited <- worker.Do(t.Context(), key, func(context.Context) error { return nil })
			}()
			_, err = web.Acquire(t.Context(), key)
			require.ErrorIs(t, err, lock.ErrHeld)
			resumed, err := worker.Resume(t.Context(), ticket)
			require.NoError(t, err)
			after, is := resumed.Fence()
			require.Equal(t, name == "fenced", is)
			if is {
				require.Greater(t, after, before)
			}
			_, err = web.Resume(t.Context(), ticket)
			require.ErrorIs(t, err, lock.ErrLost)
			require.NoError(t, resumed.Extend(t.Context()))
			require.NoError(t, resumed.Release(t.Context()))
			require.NoError(t, <-waited)

			e, err = web.Acquire(t.Context(), key)
			require.NoError(t, err)
			ticket, err = e.HandOver(t.Context(), 50*time.Millisecond)
			require.NoError(t, err)
			require.NoError(t, worker.Do(t.Context(), key, func(context.Context) error { return nil }), "free after patience")
			_, err = worker.Resume(t.Context(), ticket)
			require.ErrorIs(t, err, lock.ErrLost)
		})
	}
}
