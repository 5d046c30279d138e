package history_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/httplatch/httplatch/internal/testkit/testmain"
)

// crowd is a kind of history of buyers: sets of one to four of five keys, two permits, and keys
// that are handed over by tickets.
type crowd struct {
	family

	atOnce bool // the store takes sets at once
	nested bool // a mistake: the keys of a set are taken in the caller's own order
	more   int  // a mistake: half of the buyers believe in so many permits more
}

var (
	setsAtOnce  = crowd{family: family{name: "sets at once", rest: 4 * time.Millisecond, lockers: true}, atOnce: true}
	setsInOrder = crowd{family: family{name: "sets in order", rest: 4 * time.Millisecond, lockers: true}}
	setsFenced  = crowd{family: family{name: "sets with fences", rest: 4 * time.Millisecond, lockers: true, fenced: true}, atOnce: true}

	crowds = []crowd{setsAtOnce, setsInOrder, setsFenced}
)

// run makes a history and returns what is wrong with it, on the level of the store and on that
// of sets.
func (c crowd) run(t *testing.T, seed uint64, n *counts) (byStore, bySet error) {
	t.Helper()
	w := c.server.disturb(t, rand.New(rand.NewPCG(seed, 0)))
	disturbed, undisturbed := c.open(t, w.addr()), c.near
	if undisturbed == nil {
		undisturbed = c.open(t, c.server.addr(t))
	}
	h := newHistory(n)
	h.deadlines = c.server.deadlines()
	w.begin()
	var buyers []*buyer
	var all sync.WaitGroup
	ctx := context.WithoutCancel(t.Context())
	for i := range rooms {
		room := &room{name: fmt.Sprintf("sets-%d-%x-room%d", seed, h.wall.UnixNano(), i)}
		queue := new(ticketQueue)
		for j := range clients {
			s := newWitness(h, i*clients+j, disturbed)
			if j < direct {
				s.reroute(undisturbed)
			}
			b := newBuyer(c, s, rand.New(rand.NewPCG(seed, 1+uint64(s.client))), queue)
			buyers = append(buyers, b)
			all.Go(func() { b.work(ctx, room) })
		}
	}
	all.Wait()
	w.end(n)
	for _, b := range buyers {
		b.store.reroute(undisturbed) // what is done in the background gets its answers
		b.close(t)
	}
	n.add("histories", c.name, 1)
	n.add("operations", c.name, h.size())
	j := c.judge(t, seed)
	byStore = j.check(h.model(), h.partitions())
	bySet = j.check(setModel(), h.roomsOf(buyers))
	if bySet == nil {
		bySet = h.standoff(buyers)
	}
	if byStore == nil {
		byStore = h.oddities()
	}
	return byStore, bySet
}

func TestHistoriesOfSets(t *testing.T) {
	testmain.SkipIn(t, testmain.Short, "makes histories for seconds")
	t.Logf("-seed %d -histories.sets %d", *seedFlag, *setsFlag)
	n := newCounts()
	near := family{server: onRedis{}}.open(t, onRedis{}.addr(t))
	next := make(chan int)
	var all sync.WaitGroup
	for range atOnce {
		all.Go(func() {
			for i := range next {
				c := crowds[i%len(crowds)]
				c.server, c.near = onRedis{}, near
				t.Run(fmt.Sprintf("%03d %s", i, c.name), func(t *testing.T) {
					byStore, bySet := c.run(t, *seedFlag+uint64(i), n)
					require.NoError(t, byStore)
					require.NoError(t, bySet)
				})
			}
		})
	}
	for i := range *setsFlag {
		next <- i
	}
	close(next)
	all.Wait()
	n.log(t)
	if *setsFlag < 100 || t.Failed() {
		return
	}
	for group, names := range map[string][]string{
		"sets":              {"of 1", "of 2", "of 3", "of 4", "permits"},
		"tickets":           {"given", "resumed", "refused", "without an answer"},
		"outcomes":          {"unknown", "not applied"},
		"events of lockers": {"recovered", "unknown", "reaped"},
	} {
		for _, name := range names {
			require.Positive(t, n.get(group, name), name)
		}
	}
	for s := range stepLost {
		require.Positive(t, n.get("moves", s.String()), s)
	}
	require.Zero(t, n.get("moves", stepLost.String()), "sets that outlast a history")
}

// The twin of TestHistoriesOfSets: the same with mistakes.
func TestPlantedBugsOfSetsAreFound(t *testing.T) {
	testmain.SkipIn(t, testmain.Short, "makes histories until each planted bug is found")
	t.Parallel()
	t.Logf("-seed %d", *seedFlag)
	bad := func(c crowd, change func(c *crowd)) crowd {
		change(&c)
		c.server = onRedis{}
		return c
	}
	plant := func(p planting) func(c *crowd) { return func(c *crowd) { c.plant = p } }
	for name, c := range map[string]crowd{
		"a set claimed in part":   bad(setsAtOnce, plant(plantPartClaim)),
		"one permit more":         bad(setsInOrder, func(c *crowd) { c.more = 1 }),
		"a ticket resumed twice":  bad(setsInOrder, plant(plantAnyTicket)),
		"keys in no common order": bad(setsInOrder, func(c *crowd) { c.nested = true }),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			n := newCounts()
			for i := range uint64(enough) {
				_, found := c.run(t, *seedFlag+i, n)
				illegal, order := errors.AsType[*illegalError](found)
				_, standoff := errors.AsType[*standoffError](found)
				if order && !c.nested || standoff && c.nested {
					t.Logf("found in history %d: %v", i+1, found)
					if order {
						require.FileExists(t, illegal.picture)
					}
					return
				}
			}
			require.Fail(t, "not found", "in %d histories", enough)
		})
	}
}
