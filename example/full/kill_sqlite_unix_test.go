//go:build unix

package main_test

import (
	"fmt"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/httplatch/httplatch/internal/testkit/testmain"
)

// TestKillLoopOverSQLite: two desks on one file, a random one of them killed every second,
// take 100 orders of clients that repeat until they have an answer.
func TestKillLoopOverSQLite(t *testing.T) {
	testmain.SkipIn(t, testmain.Quick, "kills a process a second until 100 orders are placed")
	t.Parallel()
	const orders, clients = 100, 8
	pair := newPair(t, "-sqlite", filepath.Join(t.TempDir(), "desk.db"), "-work", "200ms", "-lease", "2s", "-budget", "1s")

	var next, cut atomic.Int64
	answers := make([]string, orders)
	var all sync.WaitGroup
	for range clients {
		all.Go(func() {
			for i := next.Add(1) - 1; i < orders; i = next.Add(1) - 1 {
				answers[i] = pair.orderUntilPlaced(int(i), &cut)
			}
		})
	}
	done := make(chan struct{})
	go func() { all.Wait(); close(done) }()
	kills := pair.killUntil(done)

	t.Logf("%d kills, %d requests without an answer", kills, cut.Load())
	require.Positive(t, kills)
	for i, answered := range answers {
		placed := pair.desks[0].Load().orders(fmt.Sprintf("user-%d", i))
		require.Len(t, placed, 1, "rows of an order")
		require.Contains(t, answered, placed[0].ID)
		require.Equal(t, answered, pair.orderUntilPlaced(i, &cut), "a replay")
	}
}
