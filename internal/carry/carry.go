// Package carry lets a store whose call returns before the command that it has
// sent is through say so to the Locker: a claim is swept for until nothing
// carries it any more, and Close waits for what is on its way.
package carry

import "context"

// Counter counts what is on its way.
type Counter interface {
	// Depart counts a command that a call leaves behind. It is called before
	// that call returns.
	Depart()
	// Arrive undoes one Depart: the command will not be written any more, if it
	// was not.
	Arrive()
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
