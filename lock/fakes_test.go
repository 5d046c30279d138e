package lock_test

import (
	"context"
	"errors"
	"io"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/httplatch/httplatch/lock"
	"github.com/httplatch/httplatch/lock/internal/send"
	"github.com/httplatch/httplatch/lock/internal/testkit/fault"
	"github.com/httplatch/httplatch/lock/redisstore"
)

// hinted is a scripted store with hints.
type hinted struct {
	*fault.Store
	none  bool // as a store without hints
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
		s := &hinted{Store: fault.New(), watches: make(map[chan struct{}]string)}
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

func (s *hinted) Describe() lock.Description {
	about := s.Store.Describe()
	about.Watch = s.watch
	return about
}

func (s *hinted) watch(key string) (<-chan struct{}, func()) {
	s.hints.Lock()
	defer s.hints.Unlock()
	s.begun++
	wake := make(chan struct{}, 1)
	s.watches[wake] = key
	if s.flood {
		close(wake)
	}
	stop := func() {
		s.hints.Lock()
		defer s.hints.Unlock()
		delete(s.watches, wake)
	}
	if s.none {
		return nil, stop
	}
	return wake, stop
}

// watched are the keys that are watched, once for each watcher.
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

func (s *hinted) Release(ctx context.Context, key string, c lock.Claim) (bool, error) {
	ok, err := s.Store.Release(ctx, key, c)
	s.hint(key)
	return ok, err
}

func (s *hinted) Settle(ctx context.Context, key string, c lock.Claim, receipt []byte, keep time.Duration) (bool, error) {
	ok, err := s.Store.Settle(ctx, key, c, receipt, keep)
	s.hint(key)
	return ok, err
}

// answering is a store that answers claims one after the other as configured,
// and finds every entry that it has to release.
type answering struct {
	lock.Store
	claims []func(lock.Claim) (lock.Entry, error)
}

func (s *answering) Claim(_ context.Context, _ string, c lock.Claim) (lock.Entry, error) {
	answer := s.claims[0]
	s.claims = s.claims[1:]
	return answer(c)
}

func (s *answering) Release(context.Context, string, lock.Claim) (bool, error) {
	time.Sleep(5 * time.Millisecond)
	return true, nil
}

func (s *answering) Describe() lock.Description { return lock.Description{MaxLag: time.Second} }

// lingering is a store whose first claim returns when its caller has gone, and
// is applied a minute later. It says so, unless it is silent. Until then, no
// claim is answered.
type lingering struct {
	lock.Store

	silent bool
	begun  atomic.Bool
	landed chan struct{}
}

func (s *lingering) Describe() lock.Description { return lock.Description{MaxLag: time.Second} }

func (s *lingering) Claim(ctx context.Context, key string, c lock.Claim) (lock.Entry, error) {
	select {
	case <-s.landed:
		return s.Store.Claim(ctx, key, c)
	case <-ctx.Done():
	}
	if s.begun.CompareAndSwap(false, true) {
		counts := send.InFlight(ctx)
		if !s.silent {
			counts.Depart()
		}
		time.AfterFunc(time.Minute, func() {
			_, _ = s.Store.Claim(context.WithoutCancel(ctx), key, c)
			if !s.silent {
				counts.Arrive(send.Lost)
			}
			close(s.landed)
		})
	}
	return lock.Entry{}, errors.New("no caller waits")
}

// plain hides the optional interfaces of a store.
type plain struct{ lock.Store }

// leftClaim is a claim that a store does not wait for any longer.
type leftClaim struct {
	flight *send.Flight
	apply  func() error
}

// leave is the fault: the call returns, and counts the send that it leaves in flight.
func (c *leftClaim) leave(ctx context.Context, apply func() error) error {
	c.flight, c.apply = send.InFlight(ctx), apply
	c.flight.Depart()
	return io.EOF
}

// endless passes claims on without the time that they have, so that the store
// cannot know which of them would be too late.
type endless struct{ *redisstore.Store }

func (s endless) Claim(ctx context.Context, key string, c lock.Claim) (lock.Entry, error) {
	return s.Store.Claim(noDeadline{ctx}, key, c)
}

type noDeadline struct {
	context.Context //nolint:containedctx // it is one
}

func (noDeadline) Deadline() (time.Time, bool) { return time.Time{}, false }
