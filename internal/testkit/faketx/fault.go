package faketx

import (
	"context"
	"fmt"
	"io"
	"sync"
	"time"

	"github.com/httplatch/httplatch/lock"
)

// Step is a step of work under a claim that can meet a [Fault].
type Step string

// The steps. Settle is the Settle of the Store, and Commit is the COMMIT that the Settle of a
// transaction sends.
const (
	Claim    Step = "claim"
	Renew    Step = "renew"
	Settle   Step = "settle"
	Release  Step = "release"
	Get      Step = "get"
	Begin    Step = "begin"
	Commit   Step = "commit"
	Outcome  Step = "outcome"
	Rollback Step = "rollback"
)

// Fault executes one step with a fault. apply executes the step itself.
type Fault func(ctx context.Context, apply func() error) error

// LoseReply applies the step, and returns an unknown outcome.
func LoseReply(_ context.Context, apply func() error) error { _ = apply(); return io.EOF }

// LoseRequest does not apply the step, and returns an unknown outcome.
func LoseRequest(context.Context, func() error) error { return io.EOF }

// HangReply applies the step, and returns when its caller gives up.
func HangReply(ctx context.Context, apply func() error) error {
	_ = apply()
	return Hang(ctx, nil)
}

// Hang does not apply the step, and returns when its caller gives up.
func Hang(ctx context.Context, _ func() error) error { <-ctx.Done(); return ctx.Err() }

// Late returns when its caller gives up, and applies the step d after its arrival.
func Late(d time.Duration) Fault {
	return func(ctx context.Context, apply func() error) error {
		time.AfterFunc(d, func() { _ = apply() })
		return Hang(ctx, nil)
	}
}

// Slow applies the step, and answers after d.
func Slow(d time.Duration) Fault {
	return func(ctx context.Context, apply func() error) error {
		err := apply()
		timer := time.NewTimer(d)
		defer timer.Stop()
		select {
		case <-timer.C:
			return err
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// Panic panics.
func Panic(context.Context, func() error) error { panic("faketx: as the test wants") }

// Refuse does not apply the step, and returns err, which may be nil.
func Refuse(err error) Fault {
	return func(context.Context, func() error) error {
		if err == nil {
			return fmt.Errorf("%w: refused", lock.ErrNotApplied)
		}
		return fmt.Errorf("%w: %w", lock.ErrNotApplied, err)
	}
}

// Conflict is a serialization failure.
func Conflict(ctx context.Context, apply func() error) error {
	return Refuse(fmt.Errorf("%w: could not serialize access", lock.ErrUnavailable))(ctx, apply)
}

// Next queues faults for the next steps of a kind, one for each step; nil is no fault.
func (s *Store) Next(step Step, faults ...Fault) {
	s.steps.mu.Lock()
	defer s.steps.mu.Unlock()
	s.steps.next[step] = append(s.steps.next[step], faults...)
}

// Every sets the fault of all other steps of a kind; nil ends it.
func (s *Store) Every(step Step, f Fault) {
	s.steps.mu.Lock()
	defer s.steps.mu.Unlock()
	s.steps.every[step] = f
}

// Count returns the number of steps of a kind, applied or not.
func (s *Store) Count(step Step) int {
	s.steps.mu.Lock()
	defer s.steps.mu.Unlock()
	return s.steps.count[step]
}

// draw returns the fault of the next step of a kind, nil if it has none.
func (s *Store) draw(step Step) Fault {
	s.steps.mu.Lock()
	defer s.steps.mu.Unlock()
	s.steps.count[step]++
	queue := s.steps.next[step]
	if len(queue) == 0 {
		return s.steps.every[step]
	}
	s.steps.next[step] = queue[1:]
	return queue[0]
}

// meet makes a step. A step that is applied after its return shares no memory with its caller.
func meet[T any](ctx context.Context, s *Store, step Step, call func(ctx context.Context) (T, error)) (T, error) {
	f := s.draw(step)
	if f == nil {
		return call(ctx)
	}
	var mu sync.Mutex
	var made T
	err := f(ctx, func() error {
		at := ctx
		if ctx.Err() != nil { // the step arrives after its caller has left
			at = context.WithoutCancel(ctx)
		}
		m, err := call(at)
		mu.Lock()
		defer mu.Unlock()
		made = m
		return err
	})
	mu.Lock()
	defer mu.Unlock()
	return made, err
}

// do is meet for a step that returns nothing.
func (s *Store) do(ctx context.Context, step Step, call func()) error {
	_, err := meet(ctx, s, step, func(context.Context) (struct{}, error) { call(); return struct{}{}, nil })
	return err
}

// Trust gives the database a defect: Outcome reads, and takes nothing away.
func (s *Store) Trust() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.trusting = true
}
