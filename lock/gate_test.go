package lock_test

import (
	"context"
	"math/rand/v2"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/httplatch/httplatch/lock"
	"github.com/httplatch/httplatch/lock/memstore"
)

// A process that holds many keys knows each of them, whatever comes and goes
// beside it.
func TestManyKeysInOneProcess(t *testing.T) {
	const n = 5_000
	l := lock.New(memstore.New())
	held := make([]*lock.Lease, n)
	random := rand.New(rand.NewPCG(1, 2))
	count := 0
	for range 4 * n {
		i := random.IntN(n)
		e, err := l.Acquire(t.Context(), "user="+strconv.Itoa(i))
		if held[i] == nil {
			require.NoError(t, err)
			held[i] = e
			count++
			continue
		}
		require.ErrorIs(t, err, lock.ErrHeld)
		if random.IntN(2) == 0 {
			require.NoError(t, held[i].Release(t.Context()))
			held[i] = nil
			count--
		}
	}
	require.Len(t, l.Snapshot(n, nil).Holds, count)
	for _, e := range held {
		require.NoError(t, e.Release(t.Context()))
	}
	require.Empty(t, l.Snapshot(n, nil).Holds)
	require.NoError(t, l.Close(context.Background()))
}
