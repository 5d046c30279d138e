package lock_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/httplatch/httplatch/internal/testkit/faketx"
	"github.com/httplatch/httplatch/lock"
)

// charge notes an effect that is not a row, between its own row and then.
func charge(then func(context.Context) ([]byte, error)) func(context.Context) ([]byte, error) {
	return func(ctx context.Context) ([]byte, error) {
		_ = faketx.Insert(ctx, "mine")
		if err := lock.Commit(ctx); err != nil {
			return nil, err
		}
		return then(ctx)
	}
}

// After Commit nothing frees the key, though all rows are rolled back.
func TestCommitInATransaction(t *testing.T) {
	for _, tt := range []struct {
		name    string
		arrange func(s *faketx.Store)
		then    func(context.Context) ([]byte, error)
		settled bool // with the receipt, and not a tombstone
		is      error
	}{
		{name: "it commits", then: func(context.Context) ([]byte, error) { return []byte("mine"), nil }, settled: true},
		{name: "it fails", then: func(context.Context) ([]byte, error) { return nil, errWork }, is: errWork},
		{name: "it panics", then: func(context.Context) ([]byte, error) { panic("as the test wants") }, is: errAny},
		{
			name: "a serialization failure", then: func(context.Context) ([]byte, error) { return []byte("mine"), nil }, is: lock.ErrUnavailable,
			arrange: func(s *faketx.Store) { s.Next(faketx.Commit, faketx.Conflict) },
		},
		{
			name: "the commit is lost", then: func(context.Context) ([]byte, error) { return []byte("mine"), nil }, is: lock.ErrUnavailable,
			arrange: func(s *faketx.Store) { s.Next(faketx.Commit, faketx.LoseRequest) },
		},
		{
			name: "it is asked in vain", then: func(context.Context) ([]byte, error) { return []byte("mine"), nil }, is: lock.ErrUnknown,
			arrange: func(s *faketx.Store) {
				s.Next(faketx.Commit, faketx.LoseRequest)
				s.Every(faketx.Outcome, faketx.Hang)
				time.AfterFunc(10*time.Second, func() { s.Every(faketx.Outcome, nil) })
			},
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			txBubble(t, func(t *testing.T, s *faketx.Store, open func(...lock.Option) *lock.Locker) {
				l, other := open(), open()
				if tt.arrange != nil {
					tt.arrange(s)
				}
				_, _, err := once(t, l, charge(tt.then))
				requireIs(t, err, tt.is)
				if errors.Is(tt.is, lock.ErrUnknown) {
					time.Sleep(20 * time.Second)
				}
				want := ""
				if tt.settled {
					want = "mine"
					require.Equal(t, []string{"mine"}, s.Effects())
				} else {
					require.Empty(t, s.Effects())
				}
				for range 2 {
					for _, l := range []*lock.Locker{l, other} {
						receipt, replayed, err := once(t, l, mustNotRun)
						require.NoError(t, err)
						require.True(t, replayed)
						require.Equal(t, want, receipt)
					}
					time.Sleep(10 * lease)
				}
			})
		})
	}
}

// A crash after Commit leaves an unknown outcome, and one before it nothing.
func TestCrashAfterCommitInATransaction(t *testing.T) {
	txBubble(t, func(t *testing.T, s *faketx.Store, open func(...lock.Option) *lock.Locker) {
		txCrash(t, s, func(ctx context.Context) { require.NoError(t, lock.Commit(ctx)) })
		time.Sleep(2 * lease)
		_, _, err := once(t, open(), mustNotRun)
		require.ErrorIs(t, err, lock.ErrAbandoned)
		require.Empty(t, s.Effects())
		time.Sleep(keep)
		next(t, s, "", open())
	})
}

// A run that takes over from committed work is itself remembered, if it disappears.
func TestRerunOfCommittedWorkInATransaction(t *testing.T) {
	txBubble(t, func(t *testing.T, s *faketx.Store, open func(...lock.Option) *lock.Locker) {
		rerun := lock.WithRerunAbandoned()
		txCrash(t, s, func(ctx context.Context) { require.NoError(t, lock.Commit(ctx)) }, rerun)
		time.Sleep(keep + time.Second) // it is held for as long, as without a transaction
		txCrash(t, s, func(ctx context.Context) { require.Equal(t, 2, lock.Attempt(ctx)) }, rerun)
		time.Sleep(lease)
		_, _, err := once(t, open(), mustNotRun)
		require.ErrorIs(t, err, lock.ErrAbandoned)

		// It is given back as it was after a failure, even a failure of its commit.
		l := open(rerun)
		s.Next(faketx.Commit, faketx.Conflict)
		attempt := 0
		again := func(ctx context.Context) ([]byte, error) {
			attempt = lock.Attempt(ctx)
			return []byte("again"), faketx.Insert(ctx, "again")
		}
		_, _, err = once(t, l, again)
		require.ErrorIs(t, err, lock.ErrUnavailable)
		require.Equal(t, 3, attempt)
		time.Sleep(2 * time.Millisecond)
		receipt, _, err := once(t, l, again)
		require.NoError(t, err)
		require.Equal(t, "again", receipt)
		require.Equal(t, 3, attempt)
		require.Equal(t, []string{"again"}, s.Effects())
	})
}

// Where the store takes no note of it, the effect is not to happen.
func TestCommitThatIsNotNoted(t *testing.T) {
	txBubble(t, func(t *testing.T, s *faketx.Store, open func(...lock.Option) *lock.Locker) {
		l := open()
		_, _, err := once(t, l, func(ctx context.Context) ([]byte, error) {
			s.Every(faketx.Renew, faketx.LoseRequest)
			err := lock.Commit(ctx)
			s.Every(faketx.Renew, nil)
			require.ErrorIs(t, err, lock.ErrUnknown)
			return nil, err
		})
		require.ErrorIs(t, err, lock.ErrUnknown)
		_, replayed, err := once(t, l, mustNotRun)
		require.NoError(t, err)
		require.True(t, replayed, "it may have been noted: on the safe side")
	})
	// A later renewal makes good for it.
	txBubble(t, func(t *testing.T, s *faketx.Store, open func(...lock.Option) *lock.Locker) {
		txCrash(t, s, func(ctx context.Context) {
			s.Every(faketx.Renew, faketx.LoseRequest)
			require.ErrorIs(t, lock.Commit(ctx), lock.ErrUnknown)
			s.Every(faketx.Renew, nil)
			time.Sleep(lease)
		})
		time.Sleep(2 * lease)
		_, _, err := once(t, open(), mustNotRun)
		require.ErrorIs(t, err, lock.ErrAbandoned)
	})
	// The claim that it is to be noted on is another's.
	txBubble(t, func(t *testing.T, s *faketx.Store, open func(...lock.Option) *lock.Locker) {
		l, other := open(lock.WithMaxHold(lease)), open()
		_, replayed, err := once(t, l, func(ctx context.Context) ([]byte, error) {
			time.Sleep(lease)
			next(t, s, "", other)
			require.ErrorIs(t, lock.Commit(ctx), lock.ErrLost)
			return insert("mine")(ctx)
		})
		require.NoError(t, err)
		require.True(t, replayed)
		require.Equal(t, []string{"next"}, s.Effects())
	})
}
