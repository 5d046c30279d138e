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

	// Doubt is called before the run sends a call elsewhere that may have an effect. Until
	// Dispel is called as often, no failure and no crash frees the key: a run that ends
	// without a receipt leaves this one. It notes that as lock.Commit does, with the same
	// errors; after one the call must not be sent, and Dispel not be called.
	Doubt(ctx context.Context, receipt []byte) error

	// Dispel says of one call that it certainly had no effect.
	Dispel()
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

// UndoneError ends a run that has lost its lease and was rolled back, or not begun. The other
// holder of the key decides.
type UndoneError struct{ Err error }

// Error returns why.
func (u *UndoneError) Error() string { return u.Err.Error() }

// Unwrap returns Err, which matches lock.ErrLost.
func (u *UndoneError) Unwrap() error { return u.Err }

// UnconfirmedError ends a run of whose transaction it is not known whether it was
// committed.
type UnconfirmedError struct{ Err error }

// Error returns why.
func (u *UnconfirmedError) Error() string { return u.Err.Error() }

// Unwrap returns Err, which matches lock.ErrUnknown.
func (u *UnconfirmedError) Unwrap() error { return u.Err }

// Sharer is an error of a run that has something to say to the calls which waited
// for that run in place of running.
type Sharer interface {
	error

	// Shared reports whether it says anything to them: the next of them runs if not.
	Shared() bool

	// Share returns what they are to get, each the same. It is called before the
	// run ends, once, and only if there are any.
	Share() error
}
