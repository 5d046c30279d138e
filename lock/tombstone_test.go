package lock_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/httplatch/httplatch/lock"
)

// fullMemory has room for claims and what they reserve, and for no large receipt.
func fullMemory() lock.Store { return lock.NewMemory(lock.WithLimits(1000, 20_000)) }

var large = make([]byte, 100_000)

func answerWith(receipt []byte) func(context.Context) ([]byte, error) {
	return func(context.Context) ([]byte, error) { return receipt, nil }
}

// The answer is delivered, its repeats find that there was one, and the key is
// free when the keep is over.
func TestReceiptThatDoesNotFitEndsWithItsKeep(t *testing.T) {
	for name, store := range map[string]func() lock.Store{
		"memory": fullMemory,
		"sealed": func() lock.Store { return lock.NewSealed(fullMemory(), gcm(t, 1)) },
		"behind a network": func() lock.Store {
			s := newScripted()
			s.store = fullMemory()
			return s
		},
	} {
		for print, fingerprint := range map[string][]byte{"fingerprint": print1, "no fingerprint": nil} {
			t.Run(name+", "+print, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					s := store()
					l := lock.New(s, lock.WithLogger(quiet), lock.WithLease(lease), lock.WithBudget(budget), lock.WithKeep(keep))
					receipt, replayed, err := l.Once(t.Context(), key, fingerprint, answerWith(large))
					require.NoError(t, err)
					require.False(t, replayed)
					require.Equal(t, large, receipt)
					for range 10 {
						e, err := s.Get(t.Context(), record)
						require.NoError(t, err)
						require.Equal(t, lock.Settled, e.State)
						receipt, replayed, err = l.Once(t.Context(), key, fingerprint, nil)
						require.NoError(t, err)
						require.True(t, replayed)
						require.Empty(t, receipt)
						time.Sleep(keep / 11)
					}
					require.Zero(t, l.Stats().Backlog)
					time.Sleep(keep - 10*(keep/11))
					e, err := s.Get(t.Context(), record)
					require.NoError(t, err)
					require.Equal(t, lock.Free, e.State)
					require.NoError(t, l.Close(t.Context()))
				})
			})
		}
	}
}

// A caller of the store itself may try again as often as it likes.
func TestMemoryEndsARefusedReceiptWithItsKeep(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := fullMemory()
		c := memoryClaim("a", 30*time.Second)
		c.Linger = keep
		claimed(t, s, key, c)
		began := time.Now()
		for range 10 {
			ok, err := s.Settle(t.Context(), key, "a", large, keep)
			require.ErrorIs(t, err, lock.ErrFull)
			require.False(t, ok)
			ok, err = s.Renew(t.Context(), key, c)
			require.NoError(t, err)
			require.True(t, ok)
			time.Sleep(keep / 11)
		}
		time.Sleep(began.Add(keep - 1).Sub(time.Now()))
		require.Equal(t, lock.Held, stateOf(t, s, key))
		time.Sleep(1)
		require.Equal(t, lock.Free, stateOf(t, s, key))
	})
}
