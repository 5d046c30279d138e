package lock_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/httplatch/httplatch/internal/testkit/faketx"
	"github.com/httplatch/httplatch/lock"
)

// Begin waits for a connection no longer than its caller waits, though the work would
// outlive that; and the claim is given back.
func TestBeginEndsWithItsCaller(t *testing.T) {
	txBubble(t, func(t *testing.T, s *faketx.Store, open func(...lock.Option) *lock.Locker) {
		l, other := open(lock.WithDetached()), open()
		s.Next(faketx.Begin, faketx.Hang)
		ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
		defer cancel()
		began := time.Now()
		_, _, err := l.Once(ctx, key, print1, mustNotRun)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.Equal(t, 200*time.Millisecond, time.Since(began))
		next(t, s, "", other, l)
	})
	txBubble(t, func(t *testing.T, s *faketx.Store, open func(...lock.Option) *lock.Locker) {
		l, other := open(lock.WithDetached()), open()
		s.Next(faketx.Begin, func(_ context.Context, apply func() error) error { // it does not notice
			time.Sleep(time.Second)
			return apply()
		})
		ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
		defer cancel()
		_, _, err := l.Once(ctx, key, print1, mustNotRun)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		time.Sleep(time.Second)
		next(t, s, "", other, l)
	})
}

// A holder that was paused while its successor committed gets the successor's receipt,
// however its own run failed: the run has left nothing.
func TestPausedHolderGetsTheReceiptOfItsSuccessor(t *testing.T) {
	successor := func(t *testing.T, s *faketx.Store, l *lock.Locker, ends chan struct{}) {
		t.Helper()
		s.Every(faketx.Renew, faketx.LoseRequest)
		time.Sleep(2 * lease)
		s.Every(faketx.Renew, nil)
		go func() {
			_, _, _ = once(t, l, func(ctx context.Context) ([]byte, error) {
				<-ends
				return insert("successor's")(ctx)
			})
		}()
		synctest.Wait()
	}
	for name, pause := range map[string]func(s *faketx.Store, pause func()) func(ctx context.Context) ([]byte, error){
		"before BEGIN is answered": func(s *faketx.Store, pause func()) func(context.Context) ([]byte, error) {
			s.Next(faketx.Begin, func(context.Context, func() error) error { pause(); return errors.New("connection reset") })
			return mustNotRun
		},
		"in its work, which fails": func(_ *faketx.Store, pause func()) func(context.Context) ([]byte, error) {
			return func(ctx context.Context) ([]byte, error) { pause(); return nil, ctx.Err() }
		},
		"in its work, which goes on": func(_ *faketx.Store, pause func()) func(context.Context) ([]byte, error) {
			return func(ctx context.Context) ([]byte, error) { pause(); return insert("mine")(ctx) }
		},
		"in its work, and its snapshot is older": func(s *faketx.Store, pause func()) func(context.Context) ([]byte, error) {
			return func(ctx context.Context) ([]byte, error) {
				pause()
				s.Next(faketx.Commit, faketx.Conflict)
				return insert("mine")(ctx)
			}
		},
	} {
		for _, ended := range []bool{true, false} {
			t.Run(name, func(t *testing.T) {
				txBubble(t, func(t *testing.T, s *faketx.Store, open func(...lock.Option) *lock.Locker) {
					if name == "before BEGIN is answered" && strings.HasSuffix(t.Name(), "/apart") {
						return // there the wait ends with the lease
					}
					l, other := open(), open()
					ends := make(chan struct{})
					if ended {
						close(ends)
					}
					receipt, replayed, err := once(t, l, pause(s, func() { successor(t, s, other, ends) }))
					if ended {
						require.NoError(t, err)
						require.True(t, replayed)
						require.Equal(t, "successor's", receipt)
						return
					}
					require.Error(t, err)
					undone, ok := errors.AsType[*lock.TransactionError](err)
					require.True(t, ok && errors.Is(undone, lock.ErrLost) || !errors.Is(err, lock.ErrLost) || name == "in its work, which goes on", "%v", err)
					close(ends)
					synctest.Wait()
					next(t, s, "successor's", l, other)
				})
			})
		}
	}
}
