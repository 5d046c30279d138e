package lock_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/httplatch/httplatch/lock"
	"github.com/httplatch/httplatch/lock/internal/testkit/fault"
)

// A takeover replaces an entry. The claim of a takeover that lands after the record has ended finds
// no entry, and leaves none: otherwise, the entry of an attempt that no caller made would report an
// unknown outcome for as long as a record is kept.
func TestATakeoverThatLandsAfterTheRecordIsNoFreshClaim(t *testing.T) {
	bubble(t, func(t *testing.T, s *fault.Store, open func(...lock.Option) *lock.Locker) {
		const window = 5 * time.Second
		var f effect
		opts := []lock.Option{lock.WithKeep(window), lock.WithRerunAbandoned()}
		crash(t, s, func(context.Context) {}, opts...)
		s.Every(nil, fault.Settle, fault.Release, fault.Renew)
		time.Sleep(lease)
		require.Equal(t, lock.Abandoned, s.State(t, record).State)
		l, other := open(opts...), open(lock.WithKeep(window))
		s.Next(fault.Claim, nil, fault.Late(2*window)).Every(fault.HangRequest, fault.Claim)
		_, _, err := l.Once(t.Context(), key, print1, f.run("answer"))
		s.Every(nil, fault.Claim)
		require.ErrorIs(t, err, lock.ErrUnknown)
		time.Sleep(3 * window)
		require.Equal(t, lock.Free, s.State(t, record).State, "after the takeover has landed")
		_, _, err = other.Once(t.Context(), key, print1, func(ctx context.Context) ([]byte, error) {
			require.Equal(t, 1, lock.Attempt(ctx))
			return nil, nil
		})
		require.NoError(t, err, "nothing is remembered")
	})
}

// The entry that was to be taken over ends while the takeover is in flight: the key is claimed
// as a free one.
func TestTakeoverOfAnEndedEntryIsAFirstAttempt(t *testing.T) {
	bubble(t, func(t *testing.T, s *fault.Store, open func(...lock.Option) *lock.Locker) {
		var seen events
		opts := []lock.Option{lock.WithKeep(keep), lock.WithRerunAbandoned()}
		crash(t, s, func(context.Context) {}, opts...)
		s.Every(nil, fault.Settle, fault.Release, fault.Renew)
		time.Sleep(lease)
		l := open(append(opts, lock.WithObserver(seen.observe))...)
		s.Next(fault.Claim, nil, func(_ context.Context, apply func() error) error {
			s.Free(t, record) // an operator
			return apply()
		})
		_, _, err := l.Once(t.Context(), key, print1, func(ctx context.Context) ([]byte, error) {
			require.Equal(t, 1, lock.Attempt(ctx))
			return nil, nil
		})
		require.NoError(t, err)
		require.Equal(t, 1, s.State(t, record).Attempt)
		require.Zero(t, seen.count(lock.EventTakenOver))
		require.Equal(t, 1, seen.count(lock.EventClaimed))
	})
}

func TestCrash(t *testing.T) {
	bubbleCase(t, "refuse", func(t *testing.T, s *fault.Store, open func(...lock.Option) *lock.Locker) {
		var f effect
		l := open(lock.WithKeep(keep))
		crash(t, s, func(context.Context) { f.runs.Add(1) })
		_, _, err := l.Once(t.Context(), key, print1, f.run("again"))
		require.ErrorIs(t, err, lock.ErrHeld)
		time.Sleep(lease)
		for range 3 {
			_, _, err = l.Once(t.Context(), key, print1, f.run("again"))
			require.ErrorIs(t, err, lock.ErrAbandoned)
			// Another request does not get the key, and its error says so.
			_, _, err = l.Once(t.Context(), key, print2, f.run("again"))
			require.ErrorIs(t, err, lock.ErrMismatch)
			time.Sleep(keep / 4)
		}
		require.EqualValues(t, 1, f.runs.Load())
		s.Free(t, record)
		_, _, err = l.Once(t.Context(), key, print2, f.run("again"))
		require.NoError(t, err, "an operator has freed it")
	})
	bubbleCase(t, "rerun", func(t *testing.T, s *fault.Store, open func(...lock.Option) *lock.Locker) {
		var f effect
		var seen events
		l := open(lock.WithKeep(keep), lock.WithRerunAbandoned(), lock.WithObserver(seen.observe))
		crash(t, s, func(context.Context) { f.runs.Add(1) }, lock.WithRerunAbandoned())
		time.Sleep(lease)
		_, _, err := l.Once(t.Context(), key, print2, f.run("again"))
		require.ErrorIs(t, err, lock.ErrMismatch)
		_, replayed, err := l.Once(t.Context(), key, print1, func(ctx context.Context) ([]byte, error) {
			f.runs.Add(1)
			require.Equal(t, 2, lock.Attempt(ctx))
			return nil, nil
		})
		require.NoError(t, err)
		require.False(t, replayed)
		require.EqualValues(t, 2, f.runs.Load())
		require.Equal(t, 1, seen.count(lock.EventTakenOver))
	})
	bubbleCase(t, "rerun after commit", func(t *testing.T, s *fault.Store, open func(...lock.Option) *lock.Locker) {
		var f effect
		l := open(lock.WithKeep(keep), lock.WithRerunAbandoned())
		crash(t, s, func(ctx context.Context) {
			f.runs.Add(1)
			if err := lock.Commit(ctx); err != nil {
				t.Error(err)
			}
		}, lock.WithRerunAbandoned())
		for range 3 {
			time.Sleep(keep / 4)
			_, _, err := l.Once(t.Context(), key, print1, f.run("again"))
			require.Error(t, err)
		}
		require.EqualValues(t, 1, f.runs.Load())
		s.Free(t, record)
	})
}

// A first holder that comes back after a takeover gets the winner's receipt, or
// an error that says that it lost.
func TestLateSettleAfterTakeover(t *testing.T) {
	for name, settled := range map[string]bool{"settled": true, "still running": false} {
		bubbleCase(t, name, func(t *testing.T, s *fault.Store, open func(...lock.Option) *lock.Locker) {
			first, second := open(lock.WithKeep(keep), lock.WithRerunAbandoned()), open(lock.WithKeep(keep), lock.WithRerunAbandoned())
			comeBack, finish := make(chan struct{}), make(chan struct{})
			type end struct {
				receipt  []byte
				replayed bool
				err      error
			}
			ended := make(chan end, 1)
			go func() {
				r, replayed, err := first.Once(context.Background(), key, print1, func(context.Context) ([]byte, error) {
					s.Every(fault.HangRequest, fault.Renew)
					<-comeBack
					return []byte("first"), nil
				})
				ended <- end{r, replayed, err}
			}()
			time.Sleep(2 * lease)
			s.Every(nil, fault.Renew)
			done := make(chan struct{})
			go func() {
				defer close(done)
				_, _, err := second.Once(context.Background(), key, print1, func(context.Context) ([]byte, error) {
					<-finish
					return []byte("second"), nil
				})
				if err != nil {
					t.Error(err)
				}
			}()
			synctest.Wait()
			if settled {
				close(finish)
				<-done
				close(comeBack)
				e := <-ended
				require.NoError(t, e.err)
				require.True(t, e.replayed)
				require.Equal(t, "second", string(e.receipt))
				return
			}
			close(comeBack)
			require.ErrorIs(t, (<-ended).err, lock.ErrLost)
			close(finish)
			<-done
		})
	}
}

// events: a key that was free when it was granted was not taken over.
func TestFreedBeforeItsTakeover(t *testing.T) {
	bubble(t, func(t *testing.T, s *fault.Store, open func(...lock.Option) *lock.Locker) {
		var seen events
		a := open(lock.WithKeep(keep), lock.WithRerunAbandoned())
		b := open(lock.WithKeep(keep), lock.WithRerunAbandoned(), lock.WithWait(time.Minute), lock.WithObserver(seen.observe))
		crash(t, s, func(context.Context) {}, lock.WithRerunAbandoned())
		time.Sleep(lease)
		done := make(chan error, 1)
		inside, leave := make(chan struct{}), make(chan struct{})
		s.Every(func(_ context.Context, apply func() error) error {
			err := apply()
			time.Sleep(time.Millisecond)
			return err
		}, fault.Claim)
		go func() {
			_, _, err := b.Once(context.Background(), key, print1, func(context.Context) ([]byte, error) { return nil, nil })
			done <- err
		}()
		synctest.Wait() // b has seen the abandoned entry, and its answer is in flight
		s.Every(nil, fault.Claim)
		go func() {
			_, _, _ = a.Once(context.Background(), key, print1, func(context.Context) ([]byte, error) {
				close(inside)
				<-leave
				return nil, errors.New("mine")
			})
		}()
		<-inside
		time.Sleep(time.Second)
		s.Free(t, record) // an operator
		close(leave)
		require.NoError(t, <-done)
		require.Zero(t, seen.count(lock.EventTakenOver), "the key was free")
	})
}

// A takeover that was released, or whose claim was cleaned up, must not make the Locker forget the
// unknown outcome of the first attempt.
func TestATakeoverThatFailedKeepsTheAttempt(t *testing.T) {
	for name, lost := range map[string]bool{"takeover failed": false, "takeover's claim unknown": true} {
		bubbleCase(t, name, func(t *testing.T, s *fault.Store, open func(...lock.Option) *lock.Locker) {
			var f effect
			l := open(lock.WithKeep(keep), lock.WithRerunAbandoned())
			careful := open(lock.WithKeep(keep))
			crash(t, s, func(context.Context) { f.runs.Add(1) }, lock.WithRerunAbandoned())
			time.Sleep(lease)
			if lost {
				s.Next(fault.Claim, nil)
				for range 8 {
					s.Next(fault.Claim, fault.HangReply)
				}
			}
			_, _, err := l.Once(t.Context(), key, print1, func(ctx context.Context) ([]byte, error) {
				require.Equal(t, 2, lock.Attempt(ctx))
				return nil, errors.New("mine")
			})
			require.Error(t, err)
			s.Skip(fault.Claim)
			time.Sleep(2 * lease)
			_, _, err = careful.Once(t.Context(), key, print1, f.run("again"))
			require.ErrorIs(t, err, lock.ErrAbandoned, "a caller that refuses the abandoned runs it")
			_, _, err = l.Once(t.Context(), key, print1, func(ctx context.Context) ([]byte, error) {
				require.Greater(t, lock.Attempt(ctx), 1)
				return nil, nil
			})
			require.NoError(t, err)
		})
	}
}
