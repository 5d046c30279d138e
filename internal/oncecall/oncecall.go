// Package oncecall has what package middleware and Locker.Once say to each other in
// one call, and the exported method has no place for.
package oncecall

import (
	"context"
	"time"

	"github.com/httplatch/httplatch/internal/about"
)

// Call is the context of one call of Locker.Once, and what goes with it. The Locker
// splits it and keeps neither it nor what it is part of: a value of the context would
// cost an allocation for every request, and live as long as the run.
type Call struct {
	context.Context //nolint:containedctx // it is one

	Scope string        // whose work it is; "" if that is not said
	About about.Request // what the record says of it, if it has a guard
	Run   Run           // set before the function runs; nil if that runs unprotected
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

// GuardName is the name of the guard, "" if there is none.
func (c *Call) GuardName() string {
	if c == nil {
		return ""
	}
	return c.About.Guard
}

// Owner is what an entry says of its owner that process claims for c, "" if that is
// process.
func (c *Call) Owner(process string) string {
	if c.GuardName() == "" {
		return ""
	}
	c.About.Began = time.Now()
	return string(c.About.AppendTo(append(make([]byte, 0, 256), process...)))
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

	// InTransaction reports whether the function runs in a transaction of the store, which
	// is committed with its receipt when it has returned. SettleEarly then always fails.
	InTransaction() bool

	// Committed reports whether lock.Commit was called in the run.
	Committed() bool
}

// AbortedError ends a run whose transaction was rolled back for a reason that lies in
// what was done in it, so that another run would end the same way.
type AbortedError struct{ Err error }

// Error returns why, and what to do.
func (a *AbortedError) Error() string {
	return "lock: the work was rolled back, because its transaction could not be committed: " + a.Err.Error()
}

// Unwrap returns Err.
func (a *AbortedError) Unwrap() error { return a.Err }

// Class is a short and stable name of it, to count by.
func (*AbortedError) Class() string { return "aborted" }

// Sharer is an error of a run that has something to say to the calls which waited
// for that run in place of running.
type Sharer interface {
	error

	// Share returns what they are to get, each the same. It is called before the
	// run ends, once, and only if there are any.
	Share() error
}
