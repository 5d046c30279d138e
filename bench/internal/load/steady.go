package load

import (
	"context"
	"errors"
	"time"
)

// Steady runs op in every caller for warm and then for d. It counts the operations that end after
// warm: otherwise, with many callers, the callers that are served first would stand for all, since
// the others have only begun. mark is called at the beginning and at the end of d.
//
// Failures are figures here, however many there are.
func Steady(ctx context.Context, callers int, warm, d time.Duration, op Op, mark func()) (Result, error) {
	from := time.Now().Add(warm)
	to := from.Add(d)
	marked := make(chan struct{})
	go func() {
		defer close(marked)
		for _, at := range []time.Time{from, to} {
			timer := time.NewTimer(time.Until(at))
			select {
			case <-timer.C:
				mark()
			case <-ctx.Done():
				timer.Stop()
			}
		}
	}()
	done, failed := make([]int, callers), make([]int, callers)
	took, err := all(ctx, callers, func(ctx context.Context, caller int, note func(time.Duration)) error {
		for n, began := 0, time.Now(); began.Before(to) && ctx.Err() == nil; n++ {
			err := op(ctx, caller, n)
			end := time.Now()
			switch counts := !end.Before(from); {
			case !counts || errors.Is(err, ErrApart):
			case err != nil:
				failed[caller]++
			default:
				note(end.Sub(began))
				if !end.After(to) {
					done[caller]++
				}
			}
			began = end
		}
		return ctx.Err()
	})
	<-marked
	r := Result{Elapsed: d, Took: took}
	for i := range callers {
		r.Done += done[i]
		r.Failed += failed[i]
	}
	return r, err
}

// Once runs op a single time in every caller, all at once. Failures are figures
// here, however many there are.
func Once(ctx context.Context, callers int, op Op) (Result, error) {
	began := time.Now()
	failed := &failures{}
	took, err := all(ctx, callers, func(ctx context.Context, caller int, note func(time.Duration)) error {
		from := time.Now()
		if err := op(ctx, caller, 0); err != nil {
			failed.add(err)
			return ctx.Err()
		}
		note(time.Since(from))
		return ctx.Err()
	})
	return Result{Done: len(took), Failed: failed.n, Elapsed: time.Since(began), Took: took}, err
}
