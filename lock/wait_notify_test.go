package lock_test

import (
	"context"
	"crypto/aes"
	"crypto/cipher"
	"errors"
	"slices"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/httplatch/httplatch/lock"
	"github.com/httplatch/httplatch/lock/internal/testkit/fault"
	"github.com/httplatch/httplatch/lock/sealed"
)

const (
	hintPause = 5 * time.Millisecond    // between two claims that hints lead to
	longest   = 501 * time.Millisecond  // between two polls
	watched   = 2001 * time.Millisecond // the same, of a waiter that a store notifies
)

// handOvers returns the times from the end of a lease in one process to the
// grant, or the receipt, in another process that waited.
func handOvers(t *testing.T, open func(...lock.Option) *lock.Locker, settle bool) []time.Duration {
	t.Helper()
	here, there := open(), open(lock.WithWait(time.Minute))
	var took []time.Duration
	for i := range 30 {
		key := lock.Key("order", strconv.Itoa(i))
		ended := make(chan time.Time, 1)
		held := make(chan struct{})
		go func() {
			hold := time.Second + time.Duration(i)*7*time.Millisecond
			if settle {
				_, _, _ = here.Once(context.Background(), key, nil, func(context.Context) ([]byte, error) {
					close(held)
					time.Sleep(hold)
					ended <- time.Now()
					return []byte("answer"), nil
				})
				return
			}
			_ = here.Do(context.Background(), key, func(context.Context) error {
				close(held)
				time.Sleep(hold)
				ended <- time.Now()
				return nil
			})
		}()
		<-held
		var err error
		if settle {
			_, _, err = there.Once(t.Context(), key, nil, nil)
		} else {
			err = there.Do(t.Context(), key, func(context.Context) error { return nil })
		}
		require.NoError(t, err)
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
		ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
		defer cancel()
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

// A hint at the moment of a claim is not lost, and does not lead to another
// claim at the same moment.
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
			_, err := impatient.Acquire(t.Context(), key)
			require.ErrorIs(t, err, lock.ErrHeld)
		}
		require.True(t, tooMany(s.Count(fault.Claim)-claims, time.Since(began)))
		require.NoError(t, e.Release(t.Context()))
	})
}

// A caller that need not wait does not watch, and no caller watches after the wait.
func TestWatchEndsWithTheWait(t *testing.T) {
	for name, tt := range map[string]struct {
		opts    []lock.Option
		during  func(s *hinted, l *lock.Locker, cancel func())
		want    error
		watches int
	}{
		"not waiting": {want: lock.ErrHeld},
		"timed out":   {opts: []lock.Option{lock.WithWait(time.Second)}, want: lock.ErrHeld, watches: 1},
		"canceled": {
			opts:   []lock.Option{lock.WithWait(time.Minute)},
			during: func(_ *hinted, _ *lock.Locker, cancel func()) { cancel() },
			want:   context.Canceled, watches: 1,
		},
		"closed": {
			opts:   []lock.Option{lock.WithWait(time.Minute)},
			during: func(_ *hinted, l *lock.Locker, _ func()) { _ = l.Close(context.Background()) },
			want:   lock.ErrClosed, watches: 1,
		},
		"store fails": {
			opts:   []lock.Option{lock.WithWait(10 * time.Second)},
			during: func(s *hinted, _ *lock.Locker, _ func()) { s.Every(fault.Refuse, fault.Claim) },
			want:   lock.ErrUnavailable, watches: 1,
		},
	} {
		t.Run(name, func(t *testing.T) {
			hintBubble(t, func(t *testing.T, s *hinted, open func(...lock.Option) *lock.Locker) {
				here, there := open(), open(tt.opts...)
				e := acquired(t, here, key)
				require.Zero(t, s.begun, "a caller who gets it at once does not watch")
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				began := time.Now()
				if tt.during != nil {
					time.AfterFunc(100*time.Millisecond, func() { tt.during(s, there, cancel) })
				}
				_, err := there.Acquire(ctx, key)
				require.ErrorIs(t, err, tt.want)
				require.Equal(t, tt.watches, s.begun)
				require.Empty(t, s.watched())
				if errors.Is(err, context.Canceled) || errors.Is(err, lock.ErrClosed) {
					require.Equal(t, 100*time.Millisecond, time.Since(began), "it leaves at once")
				}
				s.Every(nil, fault.Claim)
				require.NoError(t, e.Release(t.Context()))
			})
		})
	}
}

// A sealed store has the hints of the store below, and none if the store below has none.
func TestSealedStoreHasHints(t *testing.T) {
	block, err := aes.NewCipher(make([]byte, 32))
	require.NoError(t, err)
	aead, err := cipher.NewGCMWithRandomNonce(block)
	require.NoError(t, err)
	hintBubble(t, func(t *testing.T, s *hinted, _ func(...lock.Option) *lock.Locker) {
		for store, most := range map[lock.Store]time.Duration{s: hintPause, s.Store: longest} {
			var lockers []*lock.Locker
			open := func(opts ...lock.Option) *lock.Locker {
				lockers = append(lockers, lock.New(sealed.New(store, aead), opts...))
				return lockers[len(lockers)-1]
			}
			took := handOvers(t, open, false)
			require.LessOrEqual(t, slices.Max(took), most)
			require.Equal(t, most == longest, slices.Max(took) > hintPause)
			for _, l := range lockers {
				require.NoError(t, l.Close(t.Context()))
			}
		}
	})
}
