package faults_test

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/httplatch/httplatch/lock"
)

// startedRun is the work of a Once that is to end during the fault.
type startedRun struct {
	runs    atomic.Int64
	finish  chan struct{}
	end     func() // closes finish
	receipt []byte
	err     error
	done    chan struct{}
}

const runAnswer = "the first answer"

// startRun returns when the work runs.
func startRun(t *testing.T, l *lock.Locker) *startedRun {
	t.Helper()
	r := &startedRun{finish: make(chan struct{}), done: make(chan struct{})}
	r.end = sync.OnceFunc(func() { close(r.finish) })
	t.Cleanup(r.end)
	go func() {
		defer close(r.done)
		for r.runs.Load() == 0 && t.Context().Err() == nil { // a busy machine may not serve the first claim
			r.receipt, _, r.err = l.Once(context.WithoutCancel(t.Context()), "order", nil, func(context.Context) ([]byte, error) {
				r.runs.Add(1)
				<-r.finish
				return []byte(runAnswer), nil
			})
		}
	}()
	until(t, func() bool { return r.runs.Load() > 0 })
	return r
}

// replays: a caller that asks now gets the answer of the work that ran.
func (r *startedRun) replays(t *testing.T, calm time.Time, lockers ...*lock.Locker) error {
	t.Helper()
	for _, l := range lockers {
		for {
			receipt, _, err := l.Once(t.Context(), "order", nil, func(context.Context) ([]byte, error) {
				r.runs.Add(1)
				return nil, nil
			})
			if err == nil && string(receipt) == runAnswer && r.runs.Load() == 1 {
				break
			}
			if err == nil || time.Since(calm) > soon {
				return fmt.Errorf("a repeat of what has run %d times got %q: %w", r.runs.Load(), receipt, wrong(err))
			}
			time.Sleep(20 * time.Millisecond)
		}
	}
	return nil
}
