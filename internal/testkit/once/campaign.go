package once

import (
	"context"
	crand "crypto/rand"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/httplatch/httplatch/lock"
)

// active is the number of keys that are in use at the same time.
const active = 4

// patience is how long the orders that are left may take once there are no more faults. An order that
// is not answered by then has locked its customer out.
const patience = 5 * time.Minute

// Campaign is one run of faults against one shop.
type Campaign struct {
	Book

	Seed          uint64
	Faults, Paths Counts

	tb    testing.TB
	began time.Time

	mu    sync.Mutex
	quiet bool             // no more faults
	next  int              // number of the oldest order that is not answered yet
	last  map[string]error // of the orders that are not answered yet
}

// New returns a campaign with the seed of [SeedFlag].
func New(tb testing.TB) *Campaign {
	tb.Helper()
	c := &Campaign{tb: tb, Seed: *SeedFlag, began: time.Now()}
	if c.Seed == 0 {
		c.Seed = uint64(c.began.UnixNano())
	}
	tb.Logf("seed %d", c.Seed)
	return c
}

// Plan has the settings of a run of a campaign.
type Plan struct {
	Processes int
	Callers   int         // of each process
	More      func() bool // prolongs the run, to four times as many faults at most; nil: never
	Until     func() bool // reports whether the run is over, in place of the number of faults; may be nil
	Twin      bool        // the run ends when a violation is found, or after two minutes; with Found after six
	Found     func() bool // reports whether a violation was found; nil: the rows are looked at all the time
}

// Run runs the campaign until there were as many faults as faults says, and then until all orders
// are answered.
func (c *Campaign) Run(shop Shop, plan Plan, faults int) {
	ctx, cancel := context.WithCancel(c.tb.Context())
	defer cancel()
	var strikes, processes sync.WaitGroup
	for i := range plan.Processes {
		processes.Go(func() { c.process(ctx, shop, plan.Callers, c.dice(i)) })
	}
	strikes.Go(func() { shop.Strike(ctx, c.dice(plan.Processes)) })
	enough := func() bool {
		if plan.Until != nil {
			return plan.Until()
		}
		n := c.Faults.Total()
		return n >= faults && (plan.More == nil || !plan.More() || n >= 4*faults)
	}
	found, limit := false, 2*time.Minute
	if plan.Found != nil {
		limit = 6 * time.Minute
	}
	for !enough() && !found && ctx.Err() == nil && (!plan.Twin || time.Since(c.began) < limit) {
		time.Sleep(100 * time.Millisecond)
		switch {
		case plan.Twin && plan.Found != nil:
			found = plan.Found()
		case plan.Twin:
			found = len(c.sofar(ctx, shop)) > 0
		}
	}
	c.mu.Lock()
	c.quiet = true
	c.mu.Unlock()
	found = found || c.tb.Failed()
	if found {
		cancel() // the rest need not end by itself: a twin may hang, and so may a shop that has ended the test
	}
	limited := time.AfterFunc(patience, cancel)
	processes.Wait()
	strikes.Wait()
	if !found {
		c.finish(ctx, shop, c.begun(), c.dice(plan.Processes+1))
	}
	if !limited.Stop() && !found {
		c.mu.Lock()
		defer c.mu.Unlock()
		for name, err := range c.last {
			c.Complain("%s is not answered %v after the last fault: %v", name, patience, err)
		}
	}
}

// finish makes all orders until they are answered, whether their process has ended or not. It replaces
// a process without a way to the database.
func (c *Campaign) finish(ctx context.Context, shop Shop, names []string, dice *rand.Rand) {
	for ctx.Err() == nil && len(names) > 0 {
		p := shop.Open(dice)
		for tries := 100; tries > 0 && len(names) > 0 && ctx.Err() == nil; tries-- {
			if answered, _ := c.order(ctx, p, names[0], dice); answered {
				names, tries = names[1:], 100
			}
		}
		p.Close(ctx)
	}
}

func (c *Campaign) dice(of int) *rand.Rand {
	return rand.New(rand.NewPCG(c.Seed, uint64(of))) //nolint:gosec // a seed repeats it, and it is small
}

// sofar returns the violations that can be found while a campaign runs.
func (c *Campaign) sofar(ctx context.Context, shop Shop) []string {
	known := c.Known()
	rows, ok := shop.Orders(ctx)
	if !ok {
		return nil
	}
	return append(c.InRows(rows), Missing(known, rows)...)
}

// Check returns the violations at the end.
func (c *Campaign) Check(shop Shop) []string {
	rows, ok := shop.Orders(c.tb.Context())
	require.True(c.tb, ok, "the database does not answer")
	return c.Violations(rows)
}

// Over reports whether there are no more faults.
func (c *Campaign) Over() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.quiet
}

// Pause waits for d, and reports whether the campaign goes on.
func (c *Campaign) Pause(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-timer.C:
		return !c.Over()
	}
}

// begun returns the orders that were begun.
func (c *Campaign) begun() (names []string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for i := range c.next + active {
		names = append(names, fmt.Sprintf("order %d", i))
	}
	return names
}

// pick returns the next order.
func (c *Campaign) pick(r *rand.Rand) string {
	c.mu.Lock()
	defer c.mu.Unlock()
	if r.IntN(2*active) == 0 && !c.quiet {
		c.next++
	}
	return fmt.Sprintf("order %d", c.next+r.IntN(active))
}

// process opens a process of the shop, makes orders in it, and kills or closes it. It repeats this
// until there are no more faults and every order that its callers have begun is answered.
func (c *Campaign) process(ctx context.Context, shop Shop, callers int, r *rand.Rand) {
	pending := make([]string, callers) // the orders that the clients of an ended process repeat
	for ctx.Err() == nil {
		p := shop.Open(r)
		var all sync.WaitGroup
		done := make([]bool, callers)
		for i := range callers {
			dice, turns := fork(r), 20+r.IntN(60)
			all.Go(func() { pending[i], done[i] = c.call(ctx, p, pending[i], turns, dice) })
		}
		all.Wait()
		over := true
		for _, d := range done {
			over = over && d
		}
		if over {
			p.Close(ctx)
			return
		}
		if r.IntN(2) == 0 && !c.Over() {
			c.Faults.Add("process: killed")
			name, dice := c.pick(r), fork(r)
			all.Go(func() { c.ask(ctx, p, name, dice) }) // the client of this order leaves with its process
			time.Sleep(time.Duration(r.IntN(20)) * time.Millisecond)
			p.Kill()
		}
		p.Close(ctx)
		all.Wait()
	}
}

func fork(r *rand.Rand) *rand.Rand { return rand.New(rand.NewPCG(r.Uint64(), r.Uint64())) } //nolint:gosec // a seed repeats it

// call makes one order after another, and returns the order that was not answered. over is true if
// no order is left.
func (c *Campaign) call(ctx context.Context, p Process, pending string, turns int, r *rand.Rand) (left string, over bool) {
	for range turns {
		if pending == "" {
			if c.Over() {
				return "", true
			}
			pending = c.pick(r)
		}
		switch answered, gone := c.order(ctx, p, pending, r); {
		case answered:
			pending = ""
		case gone:
			return pending, false
		}
	}
	return pending, pending == "" && c.Over()
}

// ask makes one order.
func (c *Campaign) ask(ctx context.Context, p Process, name string, r *rand.Rand) Reply {
	o := &Order{Name: name, Answer: fmt.Appendf(nil, "%s %s", name, crand.Text()), Dice: r}
	reply := p.Order(ctx, o)
	if reply.Ran && errors.Is(reply.Err, lock.ErrNotApplied) {
		c.Denies(o.Answer)
	}
	return reply
}

// order makes one order, and reports whether there was an answer, and whether the process has
// ended.
func (c *Campaign) order(ctx context.Context, p Process, name string, r *rand.Rand) (answered, gone bool) {
	reply := c.ask(ctx, p, name, r)
	switch {
	case reply.Err == nil && reply.Replayed:
		c.Answers.Add("repeated")
	case reply.Err == nil:
		c.Answers.Add("first")
	case errors.Is(reply.Err, lock.ErrAbandoned):
		c.Complain("%s: its outcome is said to be unknown", name)
		return true, false
	default:
		c.note(name, reply.Err)
		time.Sleep(time.Duration(5+r.IntN(50)) * time.Millisecond)
		return false, errors.Is(reply.Err, ErrGone)
	}
	c.note(name, nil)
	c.Gets(name, reply.Receipt)
	return true, false
}

// note remembers why an order is not answered. nil: it is.
func (c *Campaign) note(name string, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.last == nil {
		c.last = map[string]error{}
	}
	if c.last[name] = err; err == nil {
		delete(c.last, name)
	}
}

// Misses reports whether there is a path that neither c nor an earlier campaign has taken.
func (c *Campaign) Misses(paths []string, before *Counts) bool {
	for _, path := range paths {
		if c.Paths.Get(path)+before.Get(path) == 0 {
			return true
		}
	}
	return false
}

// Took adds the paths that c has taken.
func (c *Campaign) Took(paths []string, to *Counts) {
	for _, path := range paths {
		if c.Paths.Get(path) > 0 {
			to.Add(path)
		}
	}
}

// Report returns the numbers of the campaign.
func (c *Campaign) Report(shop Shop) string {
	rows, _ := shop.Orders(c.tb.Context())
	var b strings.Builder
	fmt.Fprintf(&b, "seed %d: GOWORK=$PWD/all.work go test ./internal/history/campaign -args -campaign.seed %d\n", c.Seed, c.Seed)
	fmt.Fprintf(&b, "%v: %d faults, %d orders, %d answers, %d of them first ones\n", time.Since(c.began).Round(time.Second),
		c.Faults.Total(), len(rows), c.Answers.Total(), c.Answers.Get("first"))
	c.Faults.Write(&b)
	b.WriteString("paths\n")
	c.Paths.Write(&b)
	fmt.Fprintf(&b, "violations: %d\n", len(c.Violations(rows)))
	return b.String()
}

// Save writes a report to the directory of artifacts, if there is one.
func Save(tb testing.TB, name, report string) {
	tb.Helper()
	tb.Log("\n" + report)
	if dir := os.Getenv("TEST_ARTIFACTS"); dir != "" {
		require.NoError(tb, os.MkdirAll(dir, 0o750))                                                      //nolint:gosec // it is the caller's
		require.NoError(tb, os.WriteFile(filepath.Join(dir, "once-"+name+".txt"), []byte(report), 0o600)) //nolint:gosec // it is the caller's
	}
}
