package lock_test

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/httplatch/httplatch/lock"
)

// hinted is a scripted store with hints.
type hinted struct {
	*scripted
	mute  bool // ends are not reported
	flood bool // there is a hint at any time

	hints   sync.Mutex
	watches map[chan struct{}]string
	begun   int
}

// hintBubble runs a test in virtual time over a store with hints, and ends by
// closing the lockers and checking that no caller still watches.
func hintBubble(t *testing.T, run func(t *testing.T, s *hinted, open func(...lock.Option) *lock.Locker)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		s := &hinted{scripted: newScripted(), watches: make(map[chan struct{}]string)}
		var lockers []*lock.Locker
		run(t, s, func(opts ...lock.Option) *lock.Locker {
			opts = append([]lock.Option{lock.WithLogger(quiet), lock.WithLease(lease), lock.WithBudget(budget), lock.WithMaxHold(time.Minute)}, opts...)
			l := lock.New(s, opts...)
			lockers = append(lockers, l)
			return l
		})
		for _, l := range lockers {
			require.NoError(t, l.Close(t.Context()))
		}
		synctest.Wait()
		require.Empty(t, s.watched())
	})
}

func (s *hinted) Watch(key string) (<-chan struct{}, func()) {
	s.hints.Lock()
	defer s.hints.Unlock()
	s.begun++
	wake := make(chan struct{}, 1)
	s.watches[wake] = key
	if s.flood {
		close(wake)
	}
	return wake, func() {
		s.hints.Lock()
		defer s.hints.Unlock()
		delete(s.watches, wake)
	}
}

// watched is the keys that are, once for each who does.
func (s *hinted) watched() []string {
	s.hints.Lock()
	defer s.hints.Unlock()
	var keys []string
	for _, key := range s.watches {
		keys = append(keys, key)
	}
	return keys
}

func (s *hinted) hint(key string) {
	s.hints.Lock()
	defer s.hints.Unlock()
	for wake, watched := range s.watches {
		if watched != key || s.mute || s.flood {
			continue
		}
		select {
		case wake <- struct{}{}:
		default:
		}
	}
}

func (s *hinted) Release(ctx context.Context, key, token string) (bool, error) {
	ok, err := s.scripted.Release(ctx, key, token)
	s.hint(key)
	return ok, err
}

func (s *hinted) Settle(ctx context.Context, key, token string, receipt []byte, keep time.Duration) (bool, error) {
	ok, err := s.scripted.Settle(ctx, key, token, receipt, keep)
	s.hint(key)
	return ok, err
}
