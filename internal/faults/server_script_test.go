package faults_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/httplatch/httplatch/internal/testkit/redistest"
	"github.com/httplatch/httplatch/lock"
	"github.com/httplatch/httplatch/lock/redisstore"
)

// forgetters are servers that are about to forget all scripts, and stores on
// them.
var forgetters = map[string]func(t *testing.T) (*redistest.Server, *redisstore.Store){
	"open": func(t *testing.T) (*redistest.Server, *redisstore.Store) {
		t.Helper()
		server := redistest.Start(t)
		return server, open(t, server.URL())
	},
	"client": func(t *testing.T) (*redistest.Server, *redisstore.Store) {
		t.Helper()
		server := redistest.Start(t)
		return server, overClient(t, server.Addr())
	},
	"cluster": func(t *testing.T) (*redistest.Server, *redisstore.Store) {
		t.Helper()
		cluster := redistest.StartCluster(t, 1, nil)
		return cluster.Nodes[0], open(t, cluster.URL())
	},
}

// A server that has lost all scripts before every single call, as after a
// failover: no caller notices.
func TestServerForgetsScripts(t *testing.T) {
	t.Parallel()
	for name, start := range forgetters {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server, store := start(t)
			plain := process(t, store)
			forgotten := func(call func() error) {
				t.Helper()
				require.NoError(t, again(t, func() error {
					server.Do(t, "SCRIPT", "FLUSH")
					return call()
				}))
			}
			for key, l := range map[string]*lock.Locker{"plain": plain, "guarded": plain.With(fencing)} {
				lockWith(t, l, key, forgotten)
			}
			for range 2 {
				forgotten(func() error {
					receipt, _, err := plain.Once(t.Context(), "order", nil, func(context.Context) ([]byte, error) { return []byte("answer"), nil })
					if err == nil && string(receipt) != "answer" {
						return fmt.Errorf("the receipt is %q", receipt)
					}
					return err
				})
			}
			var seen []lock.Entry
			forgotten(func() error {
				for e, err := range store.List(t.Context()) {
					if err != nil {
						return err
					}
					seen = append(seen, e)
				}
				return nil
			})
			require.Len(t, seen, 3)
			for _, e := range seen {
				forgotten(func() error {
					_, err := store.Forget(t.Context(), e.Key, e.Token)
					return err
				})
			}
			require.Empty(t, server.Keys(t, "latch:once:*"))
			require.Contains(t, server.Do(t, "INFO", "errorstats"), "errorstat_NOSCRIPT")
		})
	}
}

// lockWith makes every call that a lease has, each through call.
func lockWith(t *testing.T, l *lock.Locker, key string, call func(func() error)) {
	t.Helper()
	ctx := t.Context()
	var lease *lock.Lease
	acquire := func() (err error) {
		lease, err = l.Acquire(ctx, key)
		return err
	}
	call(acquire)
	call(func() error { return lease.Extend(ctx) })
	call(func() error { return lease.Release(ctx) })
	call(acquire)
	call(func() error { return lease.Settle(ctx, nil, time.Minute) })
	call(func() error { // is refused by a cool-down, of which the time left is asked for
		_, err := l.Acquire(ctx, key)
		if errors.Is(err, lock.ErrSettled) {
			return nil
		}
		return wrong(err)
	})
}
