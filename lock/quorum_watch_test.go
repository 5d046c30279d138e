package lock_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/httplatch/httplatch/lock"
)

// hinting is a node that hints, or has no hints if wake is nil.
type hinting struct {
	lock.Store
	wake    chan struct{}
	stopped int
}

func (h *hinting) Watch(string) (wake <-chan struct{}, stop func()) {
	return h.wake, func() { h.stopped++ }
}

func TestQuorumHints(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var nodes []*hinting
		var stores []lock.Store
		for range 3 {
			n := &hinting{Store: lock.NewMemory(), wake: make(chan struct{}, 1)}
			nodes = append(nodes, n)
			stores = append(stores, n)
		}
		q := lock.NewQuorum(stores).(interface {
			Watch(key string) (wake <-chan struct{}, stop func())
		})
		wake, stop := q.Watch(key)
		hint := func() bool {
			synctest.Wait()
			select {
			case <-wake:
				return true
			default:
				return false
			}
		}
		require.False(t, hint())
		nodes[2].wake <- struct{}{}
		require.False(t, hint(), "one node alone frees nothing")
		nodes[0].wake <- struct{}{}
		require.True(t, hint())
		require.False(t, hint())
		for range 3 { // nobody listens; it must not block
			nodes[1].wake <- struct{}{}
			synctest.Wait()
		}
		require.True(t, hint())
		stop()
		for _, n := range nodes {
			require.Equal(t, 1, n.stopped)
		}

		nodes[0].wake, nodes[1].wake = nil, nil
		wake, stop = q.Watch(key)
		require.Nil(t, wake, "two of three have no hints")
		stop()
		wake, stop = lock.NewQuorum([]lock.Store{lock.NewMemory(), lock.NewMemory(), lock.NewMemory()}).(interface {
			Watch(key string) (wake <-chan struct{}, stop func())
		}).Watch(key)
		require.Nil(t, wake)
		stop()
	})
}

// Somebody who waits on a quorum gets the key when it is released.
func TestQuorumWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(5)
		f.be("uudlu")
		holder, waiter := f.locker(t), f.locker(t, lock.WithWait(10*time.Second))
		e, err := holder.Acquire(t.Context(), key)
		require.NoError(t, err)
		released := time.Now().Add(5 * time.Second)
		time.AfterFunc(5*time.Second, func() { _ = e.Release(context.Background()) })
		require.NoError(t, waiter.Do(t.Context(), key, func(context.Context) error {
			require.Less(t, time.Since(released), time.Second)
			return nil
		}))
		f.heal()
		time.Sleep(10 * time.Second)
	})
}
