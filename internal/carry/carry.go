// Package carry is what a Locker and the stores of this module tell each other
// about a call beyond lock.Store: what it leaves behind, and for how long the
// caller waits.
package carry

import (
	"context"
	"errors"
)

// ErrStalled is the error of a call that was given up although it had time left:
// what it waits for stalls, while others of its kind are answered. It may have
// been applied, and may yet be. To send it again is likely to help.
var ErrStalled = errors.New("it stalls, and others do not")

// LeftError is the error of a call that left its command behind, and has counted
// it: what becomes of that is told to the Counter.
type LeftError struct{ Err error }

// Error is what Err says: what was left behind is not the reader's business.
func (e *LeftError) Error() string { return e.Err.Error() }

// Unwrap returns why the call did not wait.
func (e *LeftError) Unwrap() error { return e.Err }

// Counter counts what is on its way.
type Counter interface {
	// Depart counts a command that a call leaves behind. It is called before
	// that call returns.
	Depart()
	// Arrive undoes one Depart: the command will not be written any more, if it
	// was not. certain says that it cannot take effect any more either, because
	// it was answered or never written.
	Arrive(certain bool)
}

type key struct{}

// With returns a context that hands c down to the stores.
func With(ctx context.Context, c Counter) context.Context {
	return context.WithValue(ctx, key{}, c)
}

// From returns the Counter of ctx, nil if there is none.
func From(ctx context.Context) Counter {
	c, _ := ctx.Value(key{}).(Counter)
	return c
}
