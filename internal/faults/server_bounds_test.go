package faults_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/httplatch/httplatch/lock"
)

// bound is the longest time of a call that takes its whole budget, on a machine that is busy with
// other things. The faults last for longer.
const bound = budget + 2500*time.Millisecond

// timers adds up by how much the timers of this process are late. A machine that
// does not run us for seconds is no failure of the code that is measured.
type timers struct {
	late       atomic.Int64
	quit, done chan struct{}
}

func watchTimers() *timers {
	const beat = 20 * time.Millisecond
	w := &timers{quit: make(chan struct{}), done: make(chan struct{})}
	go func() {
		defer close(w.done)
		timer := time.NewTimer(beat)
		defer timer.Stop()
		for last := time.Now(); ; {
			select {
			case <-w.quit:
				w.late.Add(int64(max(time.Since(last)-beat, 0)))
				return
			case <-timer.C:
			}
			w.late.Add(int64(time.Since(last) - beat))
			last = time.Now()
			timer.Reset(beat)
		}
	}()
	return w
}

// sum returns the delay of all timers so far.
func (w *timers) sum() time.Duration { return time.Duration(w.late.Load()) }

func (w *timers) stop() {
	close(w.quit)
	<-w.done
}

// lateness watches timers until stop is called.
func lateness() (stop func() time.Duration) {
	w := watchTimers()
	return func() time.Duration {
		w.stop()
		return w.sum()
	}
}

// inTime reports if a call takes longer than bound.
func inTime(call func()) error {
	stop := lateness()
	began := time.Now()
	call()
	took := time.Since(began)
	if late := stop(); took > bound+late {
		return fmt.Errorf("took %v, a budget is %v", took, budget)
	}
	return nil
}

// allWithin makes all calls at once, each within bound, and joins their errors. longest is the time
// of the slowest call.
func allWithin(calls map[string]func() error) (longest time.Duration, err error) {
	var mu sync.Mutex
	var all []error
	var wg sync.WaitGroup
	began := time.Now()
	for name, call := range calls {
		wg.Go(func() {
			var err error
			late := inTime(func() { err = call() })
			took := time.Since(began)
			mu.Lock()
			defer mu.Unlock()
			longest = max(longest, took)
			if err = errors.Join(err, late); err != nil {
				all = append(all, fmt.Errorf("%s: %w", name, err))
			}
		})
	}
	wg.Wait()
	return longest, errors.Join(all...)
}

// doomed is a short lease, and when its context ended.
type doomed struct {
	lease    *lock.Lease
	granted  time.Time // not before it was
	notified chan time.Time
	late     func() time.Duration
}

func doom(t *testing.T, lease *lock.Lease) *doomed {
	t.Helper()
	w := &doomed{lease: lease, granted: time.Now(), notified: make(chan time.Time, 1), late: sync.OnceValue(lateness())}
	t.Cleanup(func() { w.late() })
	context.AfterFunc(lease.Context(), func() { w.notified <- time.Now() })
	return w
}

// wasNotified waits for the end of a lease that cannot be renewed, and returns an
// error if that came after its validity or for another reason.
func (w *doomed) wasNotified() (after time.Duration, err error) {
	after, ok := w.within(shortLease + bound)
	if !ok {
		after, ok = w.within(shortLease + bound + w.late())
	}
	if !ok {
		return after, fmt.Errorf("a holder still believed in a lease of %v after %v", shortLease, after)
	}
	if cause := context.Cause(w.lease.Context()); !errors.Is(cause, lock.ErrLost) {
		return after, fmt.Errorf("a holder was notified with another cause: %w", cause)
	}
	return after, nil
}

func (w *doomed) within(patience time.Duration) (after time.Duration, ok bool) {
	timer := time.NewTimer(time.Until(w.granted.Add(patience)))
	defer timer.Stop()
	select {
	case at := <-w.notified:
		after = at.Sub(w.granted)
		return after, after <= patience+w.late()
	case <-timer.C:
		return patience, false
	}
}
