package lock_test

import (
	"context"
	"errors"
	"slices"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/httplatch/httplatch/lock"
	"github.com/httplatch/httplatch/lock/internal/testkit/fault"
)

const (
	hintPause = 5 * time.Millisecond    // between two claims that hints lead to
	watched   = 2001 * time.Millisecond // between two polls of a waiter that a store notifies
)

// handOvers returns the times from the end of a lease in one process to the
// grant, or the receipt, in another process that waited.
func handOvers(t *testing.T, open func(...lock.Option) *lock.Locker, settle bool) []time.Duration {
	t.Helper()
	here, there := open(), open(lock.WithWait(time.Minute))
	var took []time.Duration
	for i := range 30 {
		key := lock.Key("order", strconv.Itoa(i))
		do := func(l *lock.Locker, work func(ctx context.Context) error) error { return l.Do(t.Context(), key, work) }
		if settle {
			do = func(l *lock.Locker, work func(ctx context.Context) error) error {
				_, _, err := l.Once(t.Context(), key, nil, func(ctx context.Context) ([]byte, error) { return nil, work(ctx) })
				return err
			}
		}
		ended := make(chan time.Time, 1)
		go func() {
			_ = do(here, func(context.Context) error {
				time.Sleep(time.Second + time.Duration(i)*7*time.Millisecond)
				ended <- time.Now()
				return nil
			})
		}()
		synctest.Wait()
		require.NoError(t, do(there, nothing))
		took = append(took, time.Since(<-ended))
	}
	return took
}

func TestHintLeadsToAClaimAtOnce(t *testing.T) {
	for name, settle := range map[string]bool{"release": false, "settle": true} {
		t.Run(name, func(t *testing.T) {
			hintBubble(t, func(t *testing.T, _ *hinted, open func(...lock.Option) *lock.Locker) {
				require.LessOrEqual(t, slices.Max(handOvers(t, open, settle)), hintPause)
			})
		})
	}
	// The twin: without hints the same waits last for a part of a poll.
	hintBubble(t, func(t *testing.T, s *hinted, open func(...lock.Option) *lock.Locker) {
		s.mute = true
		require.Greater(t, slices.Max(handOvers(t, open, false)), hintPause)
	})
}

// A hint that is lost costs a poll. Who relied on hints would wait for ever.
func TestLostHintCostsAPollAtMost(t *testing.T) {
	hintBubble(t, func(t *testing.T, s *hinted, open func(...lock.Option) *lock.Locker) {
		s.mute = true
		for _, settle := range []bool{false, true} {
			require.LessOrEqual(t, slices.Max(handOvers(t, open, settle)), watched)
		}
	})
	hintBubble(t, func(t *testing.T, s *hinted, open func(...lock.Option) *lock.Locker) {
		s.mute = true
		here, there := open(), open()
		held := acquired(t, here, key)
		time.AfterFunc(time.Second, func() { _ = held.Release(context.Background()) })
		ctx := within(t, time.Hour)
		wake, stop := s.watch(key)
		defer stop()
		_, err := there.Acquire(ctx, key)
		for ; errors.Is(err, lock.ErrHeld); _, err = there.Acquire(ctx, key) {
			select {
			case <-wake:
			case <-ctx.Done():
			}
		}
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.Equal(t, lock.Free, s.State(t, key).State, "and no caller holds it")
	})
}

// A hint at the moment of a claim is not lost, and leads to no claim at the same moment.
func TestEarlyHintIsKept(t *testing.T) {
	hintBubble(t, func(t *testing.T, _ *hinted, open func(...lock.Option) *lock.Locker) {
		here, there := open(), open(lock.WithWait(time.Minute))
		for range 50 {
			held := acquired(t, here, key)
			began := time.Now()
			go func() {
				synctest.Wait() // until it rests
				_ = held.Release(context.Background())
			}()
			e := acquired(t, there, key)
			require.LessOrEqual(t, time.Since(began), hintPause)
			require.Positive(t, time.Since(began))
			require.NoError(t, e.Release(t.Context()))
		}
	})
}

// Any client that can reach the server can make hints. For any number of hints, the store is asked
// at most every 5 ms.
func TestHintsAreBounded(t *testing.T) {
	const d = 10 * time.Second
	const polls = 20 // that the first of a second are
	tooMany := func(claims int, within time.Duration) bool { return claims > int(within/hintPause)+polls }
	hintBubble(t, func(t *testing.T, s *hinted, open func(...lock.Option) *lock.Locker) {
		s.flood = true
		here, there := open(), open(lock.WithWait(d))
		e := acquired(t, here, key)
		_, err := there.Acquire(t.Context(), key)
		require.ErrorIs(t, err, lock.ErrHeld)
		claims := s.Count(fault.Claim)
		require.False(t, tooMany(claims, d), claims)
		require.Greater(t, claims, int(d/hintPause/2), "and each led to one")

		// The twin: who obeys every hint asks without end, in no time at all.
		wake, stop := s.watch(key)
		defer stop()
		began, impatient := time.Now(), open()
		for range 100 {
			<-wake
			require.ErrorIs(t, impatient.Do(t.Context(), key, nil), lock.ErrHeld)
		}
		require.True(t, tooMany(s.Count(fault.Claim)-claims, time.Since(began)))
		require.NoError(t, e.Release(t.Context()))
	})
}

// A caller that need not wait does not watch, and no caller watches after the wait.
func TestWatchEndsWithTheWait(t *testing.T) {
	const soon = 100 * time.Millisecond
	for name, tt := range map[string]struct {
		wait time.Duration
		soon func(s *hinted, l *lock.Locker, cancel func())
		want error
		took time.Duration
	}{
		"not waiting": {want: lock.ErrHeld},
		"timed out":   {wait: 10 * time.Second, want: lock.ErrHeld, took: 10 * time.Second},
		"canceled":    {wait: time.Minute, soon: func(_ *hinted, _ *lock.Locker, cancel func()) { cancel() }, want: context.Canceled, took: soon},
		"closed": {
			wait: time.Minute, soon: func(_ *hinted, l *lock.Locker, _ func()) { _ = l.Close(context.Background()) },
			want: lock.ErrClosed, took: soon,
		},
		"store fails": {
			wait: 10 * time.Second, soon: func(s *hinted, _ *lock.Locker, _ func()) { s.Every(fault.Refuse, fault.Claim) },
			want: lock.ErrUnavailable, took: 10 * time.Second,
		},
	} {
		t.Run(name, func(t *testing.T) {
			hintBubble(t, func(t *testing.T, s *hinted, open func(...lock.Option) *lock.Locker) {
				here, there := open(), open()
				if tt.wait > 0 {
					there = there.With(lock.WithWait(tt.wait))
				}
				e := acquired(t, here, key)
				require.Zero(t, s.begun, "a caller who gets it at once does not watch")
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				began := time.Now()
				if tt.soon != nil {
					time.AfterFunc(soon, func() { tt.soon(s, there, cancel) })
				}
				require.ErrorIs(t, there.Do(ctx, key, nil), tt.want)
				if name == "timed out" {
					require.LessOrEqual(t, s.Count(fault.Claim), 30, "it polls once in two seconds, after some more at the beginning")
				}
				require.Equal(t, tt.wait > 0, s.begun == 1)
				require.Empty(t, s.watched())
				require.InDelta(t, tt.took, time.Since(began), float64(budget))
				s.Every(nil, fault.Claim)
				require.NoError(t, e.Release(t.Context()))
			})
		})
	}
}

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
		open, closeAll := opener(s)
		run(t, s, open)
		closeAll(t)
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
