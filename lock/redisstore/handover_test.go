package redisstore_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/httplatch/httplatch/internal/testkit/redistest"
	"github.com/httplatch/httplatch/lock"
	"github.com/httplatch/httplatch/lock/redisstore"
)

// A key goes from one process to another over a real server, with notifications and fences and
// without, while a caller waits for it.
func TestKeyIsHandedOver(t *testing.T) {
	t.Parallel()
	url := redistest.Start(t).URL()
	for name, tt := range map[string]struct {
		store []redisstore.Option
		lock  []lock.Option
	}{
		"plain":         {},
		"notifications": {store: []redisstore.Option{redisstore.WithNotifications()}},
		"fenced":        {lock: []lock.Option{lock.WithFencing()}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			key := lock.Key("handover", name)
			open := func(opts ...lock.Option) *lock.Locker {
				store, err := redisstore.Open(t.Context(), url, tt.store...)
				require.NoError(t, err)
				l := lock.New(store, append(opts, tt.lock...)...)
				t.Cleanup(func() {
					require.NoError(t, l.Close(context.WithoutCancel(t.Context())))
					require.NoError(t, store.Close())
				})
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
