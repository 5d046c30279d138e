// Package oncecall is lock.Locker for package middleware: Once with arguments and results that
// the exported method has no place for, and Amend, which is not exported.
package oncecall

import (
	"context"
	"time"

	"github.com/httplatch/httplatch/internal/requestinfo"
	"github.com/httplatch/httplatch/internal/tickettext"
)

// Call holds the arguments and results of one call of Locker.Once that the exported method
// has no place for. The Locker keeps no reference to it after the call.
type Call struct {
	Work  Work
	Wait  time.Duration       // how long to wait for the receipt of a holder, unless the Locker has lock.WithWait
	Scope string              // whose work it is; "" if that is not known
	About requestinfo.Request // the request of a guard
	Run   Run                 // set before the function runs; nil if it runs unprotected
	Left  time.Duration       // how much longer the receipt of an earlier call is kept, if it was AskLeft; 0 if not known
}

// AskLeft is the Left of a call that asks for it.
const AskLeft time.Duration = -1

// Work is the function of Once. It is an interface, because a closure would cost an allocation for
// each request.
type Work interface {
	Run(ctx context.Context) (receipt []byte, err error)
}

// Func is a function as Work.
type Func func(ctx context.Context) (receipt []byte, err error)

// Run implements [Work].
func (f Func) Run(ctx context.Context) (receipt []byte, err error) { return f(ctx) }

// Locker is a *lock.Locker.
type Locker interface {
	// Once is lock.Locker.Once with a Call.
	Once(ctx context.Context, c *Call, key string, fingerprint []byte) (receipt []byte, replayed bool, err error)

	// Amend replaces the receipt of the entry of t, if its token has settled it. change returns the new receipt; it may be called several times. If the run has not ended, Amend
	// waits for the budget of the Locker, and is then refused. An entry whose process has vanished
	// is settled with the receipt that change returns for nil.
	Amend(ctx context.Context, t tickettext.Ticket, change func(receipt []byte) ([]byte, error)) error
}

// of is set when package lock is initialized. Package lock exports the methods that every caller may
// use. This package has the methods that only a guard may use: a guard settles a run before its
// function returns, and replaces a receipt. Lock cannot export methods with these arguments, and
// package middleware cannot reach unexported ones.
var of func(locker any) Locker

// Provide sets the function behind [Of]. Package lock calls it when it is initialized.
func Provide(f func(locker any) Locker) struct{} {
	of = f
	return struct{}{}
}

// Of returns locker, a *lock.Locker, as a Locker.
func Of(locker any) Locker { return of(locker) }

// ScopeOf returns the scope, "" if c is nil.
func (c *Call) ScopeOf() string {
	if c == nil {
		return ""
	}
	return c.Scope
}

// GuardName returns the name of the guard, "" if there is none.
func (c *Call) GuardName() string {
	if c == nil {
		return ""
	}
	return c.About.Guard
}

// Owner returns the owner of the entry: process and the request of the guard. It is "" if
// there is no guard.
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

	// Hold notes that an answer begins to leave before the function of the run has returned. From
	// then on, neither a failure nor a crash frees the key, and a run without a receipt leaves
	// receipt. It asks the store whether the run still has its key. An error that matches
	// lock.ErrLost says that it has not. Any other error says that a crash would still free
	// the key.
	Hold(ctx context.Context, receipt []byte) error

	// InTransaction reports whether the function runs in a transaction of the store, which
	// is committed with its receipt when it has returned. SettleEarly then always fails.
	InTransaction() bool

	// Committed reports whether lock.Commit was called in the run.
	Committed() bool

	// NotePossibleEffect notes a call to another service, before it is sent. Until NoteNoEffect is
	// called as often, neither a failure nor a crash frees the key, and a run without a receipt
	// leaves receipt. It writes to the store as lock.Commit does, and returns the same errors.
	// After an error, do not send the call, and do not call NoteNoEffect.
	NotePossibleEffect(ctx context.Context, receipt []byte) error

	// NoteNoEffect takes back one NotePossibleEffect, of a call that certainly had no effect.
	NoteNoEffect()

	// Record returns the ticket of the run's entry. The error says that the receipt of the run cannot
	// be amended: the store has no way to, or SettleEarly or Hold was called.
	Record() (tickettext.Ticket, error)
}

// AbortedError ends a run whose transaction was rolled back because of the work in it, so that
// another run would end the same way.
type AbortedError struct{ Err error }

// Error returns the reason.
func (a *AbortedError) Error() string {
	return "lock: the work was rolled back, because its transaction could not be committed: " + a.Err.Error()
}

// Unwrap returns Err.
func (a *AbortedError) Unwrap() error { return a.Err }

// Class returns a stable name for metrics.
func (*AbortedError) Class() string { return "aborted" }

// UndoneError ends a run that has lost its lease and was rolled back, or not begun. The other
// holder of the key decides.
type UndoneError struct{ Err error }

// Error returns the text of Err.
func (u *UndoneError) Error() string { return u.Err.Error() }

// Unwrap returns Err, which matches lock.ErrLost.
func (u *UndoneError) Unwrap() error { return u.Err }

// UnconfirmedError ends a run whose COMMIT got no answer.
type UnconfirmedError struct{ Err error }

// Error returns the text of Err.
func (u *UnconfirmedError) Error() string { return u.Err.Error() }

// Unwrap returns Err, which matches lock.ErrUnknown.
func (u *UnconfirmedError) Unwrap() error { return u.Err }

// Sharer is an error of a run with its own text for the calls that waited for the run instead
// of running.
type Sharer interface {
	error

	// Shared reports whether the error concerns these calls. If not, the next of them runs.
	Shared() bool

	// Share returns the error for these calls, the same for each. It is called once, before
	// the run ends, and only if there are any.
	Share() error
}
