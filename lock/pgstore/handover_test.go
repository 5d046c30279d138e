package pgstore_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/httplatch/httplatch/lock"
)

// A key goes from one process to another, with fences and without, while a caller waits for it.
func TestKeyIsHandedOver(t *testing.T) {
	t.Parallel()
	url := database(t)
	migrate(t, newStore(t, newPool(t, url)))
	for name, opts := range map[string][]lock.Option{"plain": nil, "fenced": {lock.WithFencing()}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			key := lock.Key("handover", name)
			open := func(more ...lock.Option) *lock.Locker {
				l := lock.New(newStore(t, newPool(t, url)), append(more, opts...)...)
				t.Cleanup(func() { require.NoError(t, l.Close(context.WithoutCancel(t.Context()))) })
				return l
			}
			web, worker := open(), open(lock.WithWait(10*time.Second))
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
