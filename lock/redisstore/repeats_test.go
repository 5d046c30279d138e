package redisstore_test

import (
	"context"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/httplatch/httplatch/internal/testkit/redistest"
	"github.com/httplatch/httplatch/lock"
	"github.com/httplatch/httplatch/lock/memstore"
)

// Repeats of an answered request are replayed, however many of them meet in one
// process.
func TestRepeatsThatMeetAreReplayed(t *testing.T) {
	t.Parallel()
	const rounds, repeats = 1000, 64
	for name, open := range map[string]func(t *testing.T) lock.Store{
		"memory": func(*testing.T) lock.Store { return memstore.New() },
		"redis":  func(t *testing.T) lock.Store { t.Helper(); return open(t, redistest.Shared(t).URL()) },
	} {
		for wait, opts := range map[string][]lock.Option{"refused": nil, "waiting": {lock.WithWait(patience)}} {
			t.Run(name+", "+wait, func(t *testing.T) {
				t.Parallel()
				l := lock.New(open(t), append(opts, lock.WithLease(4*patience), lock.WithMaxHold(4*patience), lock.WithBudget(patience))...)
				t.Cleanup(func() { assert.NoError(t, l.Close(context.WithoutCancel(t.Context()))) })
				key, request := keyFor(t), []byte("request")
				runs := 0
				once := func() (string, bool, error) {
					receipt, replayed, err := l.Once(t.Context(), key, request, func(context.Context) ([]byte, error) {
						runs++
						return []byte("answer"), nil
					})
					return string(receipt), replayed, err
				}
				_, _, err := once()
				require.NoError(t, err)
				for round := range rounds {
					var all sync.WaitGroup
					start := make(chan struct{})
					for range repeats {
						all.Go(func() {
							<-start
							receipt, replayed, err := once()
							assert.NoError(t, err)
							assert.True(t, replayed)
							assert.Equal(t, "answer", receipt)
						})
					}
					close(start)
					all.Wait()
					require.False(t, t.Failed(), "round %d", round)
				}
				require.Equal(t, 1, runs)
			})
		}
	}
}
