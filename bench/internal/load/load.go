// Package load makes callers that do one thing again and again, and measures
// how long each time took: in a closed loop, where every caller begins anew
// when it is done, and in an open one, where requests are due at times that the
// one that answers cannot put off.
package load

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"sync"
	"time"
)

// Op is one time of what is measured. caller and n distinguish it from all others.
type Op func(ctx context.Context, caller, n int) error

// ErrApart is the error of an Op that succeeded and must not be counted, neither in Done nor in
// Took.
var ErrApart = errors.New("load: not to be counted")

// Result is the result of a run.
type Result struct {
	Done    int             // within Elapsed
	Failed  int             // with an error; in nothing else here
	Elapsed time.Duration   // what was asked for, or what so many times took
	Took    []time.Duration // of every time, in no order
}

// tolerated is the part of all times that may fail. One that gives up because
// the machine was busy is a figure too; if many do, something else is wrong.
const tolerated = 0.02

// judged is r with its failures, or an error if there were too many.
func (r Result) judged(f *failures, err error) (Result, error) {
	r.Failed = f.n
	if err == nil && float64(f.n) > tolerated*float64(f.n+len(r.Took)) {
		err = fmt.Errorf("%d of %d failed, the first with: %w", f.n, f.n+len(r.Took), f.first)
	}
	return r, err
}

// failures are those of all callers.
type failures struct {
	mu    sync.Mutex
	n     int
	first error
}

func (f *failures) add(err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.n++; f.n == 1 {
		f.first = err
	}
}

// Rate returns the number of operations that were done per second.
func (r Result) Rate() float64 { return float64(r.Done) / r.Elapsed.Seconds() }

// Percentile is the shortest of the times that p in 100 of them do not exceed. It panics if there are none.
func (r Result) Percentile(p float64) time.Duration {
	const inexact = 1e-9 // 99.9 % of 1000 are 999, in binary fractions too
	slices.Sort(r.Took)
	return r.Took[max(0, int(math.Ceil(p*float64(len(r.Took))/100-inexact))-1)]
}

// NotServed is the part of all times that failed, in percent.
func (r Result) NotServed() float64 {
	return 100 * float64(r.Failed) / max(1, float64(r.Failed+len(r.Took)))
}

// Closed lets callers do op for d, each at least once. Those times that end later are not done, but
// what they took counts: they may be the longest. It is an error if many fail.
func Closed(ctx context.Context, callers int, d time.Duration, op Op) (Result, error) {
	began := time.Now()
	end := began.Add(d)
	done, failed := make([]int, callers), &failures{}
	took, err := all(ctx, callers, func(ctx context.Context, caller int, note func(time.Duration)) error {
		from := time.Now()
		for n := 0; (n == 0 || from.Before(end)) && ctx.Err() == nil; n++ {
			err := op(ctx, caller, n)
			to := time.Now() // the next operation begins now: a look at the clock costs as much as a refusal
			switch {
			case err == nil:
				note(to.Sub(from))
				if !to.After(end) {
					done[caller]++
				}
			case !errors.Is(err, ErrApart) && ctx.Err() == nil:
				failed.add(err)
			}
			from = to
		}
		return ctx.Err()
	})
	r := Result{Elapsed: d, Took: took}
	for _, n := range done {
		r.Done += n
	}
	return r.judged(failed, err)
}

// Times lets callers do op n times in all. The first error ends the run.
func Times(ctx context.Context, callers, n int, op Op) (Result, error) {
	began := time.Now()
	took, err := all(ctx, callers, func(ctx context.Context, caller int, note func(time.Duration)) error {
		for i := caller; i < n && ctx.Err() == nil; i += callers {
			from := time.Now()
			if err := op(ctx, caller, i/callers); err != nil {
				return err
			}
			note(time.Since(from))
		}
		return ctx.Err()
	})
	return Result{Done: len(took), Elapsed: time.Since(began), Took: took}, err
}

// all runs the callers until the last has returned. An error of one ends the
// context of the others.
func all(ctx context.Context, callers int, run func(ctx context.Context, caller int, note func(time.Duration)) error) ([]time.Duration, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	took := make([][]time.Duration, callers)
	var wg sync.WaitGroup
	for caller := range callers {
		wg.Go(func() {
			if err := run(ctx, caller, func(d time.Duration) { took[caller] = append(took[caller], d) }); err != nil {
				cancel(err)
			}
		})
	}
	wg.Wait()
	var together []time.Duration
	for _, t := range took {
		together = append(together, t...)
	}
	return together, context.Cause(ctx)
}
