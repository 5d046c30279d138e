package overload

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"github.com/httplatch/httplatch/lock"
)

// returns is the highest rate, in attempts a second, at which all refused callers of a closed loop
// together come again: each waits for 20 ms on average, and for longer if there are more than 600
// callers. A higher rate would measure how fast this process can refuse.
const returns = 30_000

// Pause returns the average pause of a caller after a refusal, for this number of callers.
func Pause(callers int) time.Duration {
	return max(20*time.Millisecond, time.Duration(callers)*time.Second/returns)
}

// crowd makes callers do cycles: acquire a key that is theirs alone, release it.
type crowd struct {
	locker *lock.Locker
	counts *counts
	over   atomic.Bool
	all    sync.WaitGroup

	acquired func(began, ended time.Time, err error) // may be nil
}

// cycle does one cycle. due is the moment at which it should have begun.
func (c *crowd) cycle(ctx context.Context, key string, due time.Time) error {
	lease, err := c.locker.Acquire(ctx, key)
	now := time.Now()
	c.counts.acquired(now.Sub(due), err)
	if c.acquired != nil {
		c.acquired(due, now, err)
	}
	if err != nil {
		return err
	}
	if err := lease.Release(ctx); err != nil {
		c.counts.fail(err)
		return err
	}
	c.counts.done.Add(1)
	return nil
}

// closed starts callers that do one cycle after another until the end.
func (c *crowd) closed(ctx context.Context, name string, callers int) {
	pause := Pause(callers)
	for i := range callers {
		key := lock.Key(name, fmt.Sprint(i))
		c.all.Go(func() {
			for !c.over.Load() {
				if c.cycle(ctx, key, time.Now()) != nil {
					time.Sleep(pause/2 + rand.N(pause)) //nolint:gosec // not a secret
				}
			}
		})
	}
}

// open starts a caller for each arrival. Arrivals are independent of each other, like people, and
// of the results of earlier callers. perSecond is their average number. late shows whether this
// process itself limited the arrivals.
func (c *crowd) open(ctx context.Context, perSecond float64, late *histogram) {
	c.all.Go(func() {
		due := time.Now()
		for n := 0; !c.over.Load(); n++ {
			due = due.Add(time.Duration(rand.ExpFloat64() / perSecond * float64(time.Second))) //nolint:gosec // not a secret
			// Timers are late by up to a millisecond: those that are due are started together.
			if wait := time.Until(due); wait > 0 {
				time.Sleep(wait)
			}
			late.add(time.Since(due))
			at, key := due, lock.Key("arrival", fmt.Sprint(n))
			c.all.Go(func() { _ = c.cycle(ctx, key, at) })
		}
	})
}

// end lets all callers finish what they do, and returns when they have.
func (c *crowd) end() {
	c.over.Store(true)
	c.all.Wait()
}
