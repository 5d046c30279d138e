package history_test

import (
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/httplatch/httplatch/internal/testkit/once"
	"github.com/httplatch/httplatch/internal/testkit/testmain"
)

// atOnce is the number of histories that are made at the same time: mostly they wait.
const atOnce = 4

func TestHistories(t *testing.T) {
	testmain.SkipIn(t, testmain.Short, "makes histories for minutes")
	t.Logf("-seed %d -histories %d", *seedFlag, *historiesFlag)
	makeHistories(t, onRedis{}, *historiesFlag)
}

func TestHistoriesOverPostgres(t *testing.T) {
	testmain.SkipIn(t, testmain.Short, "makes histories for minutes")
	t.Logf("-seed %d -histories.pg %d", *seedFlag, *postgresFlag)
	makeHistories(t, newPostgres(t), *postgresFlag)
}

// makeHistories makes so many histories over a server, and checks each.
func makeHistories(t *testing.T, s server, n int) {
	t.Helper()
	c := new(once.Counts)
	near := family{}.over(s).open(t, s.addr(t))
	next := make(chan int)
	var all sync.WaitGroup
	for range atOnce {
		all.Go(func() {
			for i := range next {
				f := families[i%len(families)].over(s)
				f.near = near
				t.Run(fmt.Sprintf("%03d %s", i, f.name), func(t *testing.T) {
					require.NoError(t, f.run(t, *seedFlag+uint64(i), c))
				})
			}
		})
	}
	for i := range n {
		next <- i
	}
	close(next)
	all.Wait()
	var b strings.Builder
	c.Write(&b)
	t.Log("\n" + b.String())
	if n >= 100 && !t.Failed() {
		requireEventful(t, s, c)
	}
}

// requireEventful: that nothing is wrong says little where nothing happened.
func requireEventful(t *testing.T, s server, c *once.Counts) {
	t.Helper()
	paths := []string{"outcome: unknown", "outcome: not applied", "event: takeover", "event: claim granted to a repetition"}
	for _, fault := range s.faults() {
		paths = append(paths, "fault: "+fault)
	}
	for v := range opFound {
		paths = append(paths, "call: "+v.String())
	}
	for _, path := range paths {
		require.Positive(t, c.Get(path), path)
	}
}
