package load

import (
	"context"
	"math/rand/v2"
	"sync/atomic"
	"time"
)

// Arrivals are the times, from the start of a run, at which requests are due:
// rate of them in a second on average, for d, and as independent of each other
// as those of people. The same seed gives the same times.
func Arrivals(rate float64, d time.Duration, seed uint64) []time.Duration {
	random := rand.New(rand.NewPCG(seed, seed)) //nolint:gosec // not a secret
	var due []time.Duration
	for at := 0.0; ; {
		at += random.ExpFloat64() / rate
		if at >= d.Seconds() {
			return due
		}
		due = append(due, time.Duration(at*float64(time.Second)))
	}
}

// Open does op once at each of the times of due, with at most so many callers
// at once. What a request took counts from when it was due, not from when a
// caller had time for it: a server that stalls for a second owes that second to
// everyone who came meanwhile, and a generator that waited with it would not
// show it. It is an error if many fail.
//
// The runtime's timers are late by up to a millisecond on a machine that has
// little to do. That is in what every contender took, so compare them with each
// other and not with a closed loop.
func Open(ctx context.Context, callers int, due []time.Duration, op Op) (Result, error) {
	began := time.Now()
	var next atomic.Int64
	failed := &failures{}
	took, err := all(ctx, callers, func(ctx context.Context, caller int, note func(time.Duration)) error {
		timer := time.NewTimer(0)
		defer timer.Stop()
		for {
			n := int(next.Add(1)) - 1
			if n >= len(due) {
				return nil
			}
			at := began.Add(due[n])
			if wait := time.Until(at); wait > 0 {
				timer.Reset(wait)
				select {
				case <-timer.C:
				case <-ctx.Done():
					return ctx.Err()
				}
			}
			switch err := op(ctx, caller, n); {
			case err == nil:
				note(time.Since(at))
			case ctx.Err() != nil:
				return ctx.Err()
			default:
				failed.add(err)
			}
		}
	})
	return Result{Done: len(took), Elapsed: time.Since(began), Took: took}.judged(failed, err)
}
