// Package once injects faults into orders that run in transactions of a database, and then checks
// that every order was committed once. Each database takes part by a [Shop], in internal/history/campaign,
// with the faults of this database. The callers, the
// promises and the report are the same for all:
//
//	c := once.New(t)
//	shop := ... // counts in c.Faults and c.Paths, and stops with c.Over
//	c.Run(shop, once.Plan{Processes: 8, Callers: 1}, *once.FaultsFlag)
//	require.Empty(t, c.Check(shop))
package once

import (
	"context"
	"errors"
	"flag"
	"math/rand/v2"
	"strconv"
)

var (
	// SeedFlag is the seed of campaigns. 0 draws one.
	SeedFlag = flag.Uint64("campaign.seed", 0, "seed of the campaign; 0 draws one")

	// FaultsFlag is the number of faults that a campaign injects.
	FaultsFlag = flag.Int("campaign.faults", 500, "how many faults the campaign injects")
)

// Faults sets the default of -campaign.faults. TestMain calls it, before the tests run.
func Faults(n int) { _ = flag.Set("campaign.faults", strconv.Itoa(n)) }

// Shop is a database with a table of orders, which has no unique constraint, and the programs that
// order there. It is safe for concurrent use.
type Shop interface {
	// Open starts a process of the shop, which draws its faults from r.
	Open(r *rand.Rand) Process

	// Strike injects faults into the database itself until the campaign is over, or ctx ends.
	Strike(ctx context.Context, r *rand.Rand)

	// Orders returns the orders that were committed. ok is false while the database does not
	// answer.
	Orders(ctx context.Context) (rows []Row, ok bool)
}

// Process is a process of a shop. Its methods may be called concurrently.
type Process interface {
	// Order runs the work of an order, which inserts its name and answer, in a transaction under
	// its name as the key. While the campaign is not over, it may have a fault that is drawn from
	// o.Dice.
	Order(ctx context.Context, o *Order) Reply

	// Kill kills the process, or cuts its connections: after that, the process has no effect.
	Kill()

	// Close ends the process, killed or not, and frees its resources.
	Close(ctx context.Context)
}

// Order is one call of a process.
type Order struct {
	Name   string
	Answer []byte // if this call runs the work
	Dice   *rand.Rand
}

// ErrGone is the Err of a reply if the process has ended before it replied.
var ErrGone = errors.New("the process has ended")

// Reply is the answer to a caller.
type Reply struct {
	Receipt  []byte
	Replayed bool
	Ran      bool  // the work ran
	Err      error // matches the errors of package lock
}
