package campaign_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/httplatch/httplatch/internal/testkit/pgtest"
	"github.com/httplatch/httplatch/lock"
	"github.com/httplatch/httplatch/lock/pgstore"
)

const (
	lease   = 1500 * time.Millisecond
	budget  = 500 * time.Millisecond
	callers = 8
	active  = 4 // keys that are ordered at a time
)

// campaign is a server, and what is ordered there.
type campaign struct {
	t       *testing.T
	seed    uint64
	began   time.Time
	cluster *pgtest.Cluster

	upstream string // of the processes
	bounced  bool
	broken   func(*pgstore.Store, *pgxpool.Pool) lock.Store
	db       string
	until    func() bool // ends the run early; nil: never
	more     func() bool // prolongs it, to four times as many faults at most; nil: never

	faults, paths counts
	book

	mu    sync.Mutex
	quiet bool // no more faults
	next  int  // of the orders that are not answered by all yet, the first
}

func start(t *testing.T, bounced bool, broken func(*pgstore.Store, *pgxpool.Pool) lock.Store) *campaign {
	t.Helper()
	c := &campaign{
		t: t, seed: *seedFlag, began: time.Now(), bounced: bounced, broken: broken,
		cluster: pgtest.Start(t, "fsync=on", "max_connections=300", "restart_after_crash=on"),
	}
	if c.seed == 0 {
		c.seed = uint64(time.Now().UnixNano())
	}
	t.Logf("seed %d", c.seed)
	c.upstream = c.cluster.Addr()
	if bounced {
		c.upstream = pgtest.PgBouncer(t, c.cluster.Addr(), "max_client_conn=1000", "default_pool_size=60", "server_login_retry=1").Addr()
	}
	c.db = c.cluster.Database(t)
	c.cluster.Exec(t, c.db, "CREATE TABLE orders (name text, answer bytea)")
	store, err := pgstore.Open(t.Context(), c.cluster.URL(c.db, "postgres"))
	require.NoError(t, err)
	store.Close()
	return c
}

// run plays until so many faults have struck, and then until all orders are answered.
func (c *campaign) run(faults int) {
	ctx, cancel := context.WithCancel(c.t.Context())
	defer cancel()
	var servers, processes sync.WaitGroup
	for i := range callers {
		processes.Go(func() { c.process(ctx, rand.New(rand.NewPCG(c.seed, uint64(i)))) })
	}
	servers.Go(func() { c.strike(ctx, rand.New(rand.NewPCG(c.seed, callers))) })
	enough := func() bool {
		n := c.faults.total()
		return n >= faults && (c.more == nil || !c.more() || n >= 4*faults)
	}
	for !enough() && (c.until == nil || !c.until() && time.Since(c.began) < 2*time.Minute) && ctx.Err() == nil {
		time.Sleep(100 * time.Millisecond)
	}
	c.mu.Lock()
	c.quiet = true
	c.mu.Unlock()
	if c.until != nil && c.until() {
		cancel() // nothing is to be known of the rest: a twin may hang
	}
	processes.Wait()
	servers.Wait()
	p := c.spawn(rand.New(rand.NewPCG(c.seed, callers+1)))
	for _, name := range c.begun() {
		for answered := false; !answered && ctx.Err() == nil; {
			answered = p.order(ctx, name) // also orders of clients whose process has ended
		}
	}
	p.end(ctx)
}

// begun are the orders that were begun.
func (c *campaign) begun() (names []string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for i := range c.next + active {
		names = append(names, fmt.Sprintf("order %d", i))
	}
	return names
}

func (c *campaign) over() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.quiet
}

// pick returns what is to be ordered next.
func (c *campaign) pick(r *rand.Rand) string {
	c.mu.Lock()
	defer c.mu.Unlock()
	if r.IntN(2*active) == 0 && !c.quiet {
		c.next++
	}
	return fmt.Sprintf("order %d", c.next+r.IntN(active))
}

// orders are the rows that were committed.
func (c *campaign) orders() []orderRow {
	return ordersOf(c.t.Context(), c.cluster.URL(c.db, "postgres"))
}
