// Package oncecall has what package middleware and Locker.Once say to each other in
// one call, and the exported method has no place for.
package oncecall

import "context"

// Call is the context of one call of Locker.Once, and what goes with it. The Locker
// splits it and keeps neither it nor what it is part of: a value of the context would
// cost an allocation for every request, and live as long as the run.
type Call struct {
	context.Context //nolint:containedctx // it is one

	Scope string // whose work it is; "" if that is not said
	Run   Run    // set before the function runs; nil if that runs unprotected
}

// Split returns the context below ctx and the call that ctx is, nil if it is none.
func Split(ctx context.Context) (below context.Context, c *Call) {
	if c, ok := ctx.(*Call); ok {
		return c.Context, c
	}
	return ctx, nil
}

// ScopeOf returns the scope, "" if c is nil.
func (c *Call) ScopeOf() string {
	if c == nil {
		return ""
	}
	return c.Scope
}

// Begin sets the run, unless c is nil.
func (c *Call) Begin(r Run) {
	if c != nil {
		c.Run = r
	}
}

// Run is a run of Locker.Once.
type Run interface {
	// SettleEarly leaves receipt before the function of the run returns, when an
	// answer begins to leave that cannot be kept as a whole, and ends the run's
	// lease. What the function returns afterwards changes nothing. It fails if the
	// outcome of the run can no longer be recorded, or is not known to be.
	SettleEarly(ctx context.Context, receipt []byte) error

	// Committed reports whether lock.Commit was called in the run.
	Committed() bool
}

// Sharer is an error of a run that has something to say to the calls which waited
// for that run in place of running.
type Sharer interface {
	error

	// Share returns what they are to get, each the same. It is called before the
	// run ends, once, and only if there are any.
	Share() error
}
