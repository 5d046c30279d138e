// Package check checks a store from time to time while it is in use: an operator can change
// a server's settings after the start of this process.
package check

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/httplatch/httplatch/lock/internal/clock"
	"github.com/httplatch/httplatch/lock/internal/send"
)

// patience bounds one check, of about ten round trips.
const patience = 5 * time.Second

// Checks repeat the check of a store. Claims begin them, and there is no timer: a Locker
// that is not closed keeps nothing alive.
type Checks struct {
	check func(ctx context.Context) error
	every time.Duration
	due   atomic.Int64           // the moment of the next check
	found atomic.Pointer[string] // the class of the last result

	runs   atomic.Bool
	closed context.Context //nolint:containedctx // of all checks; ends with Close
	close  context.CancelFunc
}

// Init sets the check, and the time between two checks.
func (c *Checks) Init(check func(ctx context.Context) error, every time.Duration) {
	c.check, c.every = check, every
	c.due.Store(int64(clock.Now().Add(every)))
	c.closed, c.close = context.WithCancel(context.Background()) //nolint:forbidigo // Close ends it
}

// Class returns the class of the failure that the last check has found, "" if there was no failure.
func (c *Checks) Class() string {
	if found := c.found.Load(); found != nil {
		return *found
	}
	return ""
}

// Note sets the class of the last result, and returns the class before it.
func (c *Checks) Note(class string) (before string) {
	before = c.Class()
	c.found.Store(&class)
	return before
}

// Due reports whether a check is due at the moment at. Of several callers, only one gets true.
func (c *Checks) Due(at clock.Moment) bool {
	due := c.due.Load()
	return c.check != nil && int64(at) >= due && c.due.CompareAndSwap(due, int64(at.Add(c.every)))
}

// Start runs a check on its own goroutine, unless the last one still runs. calls counts it,
// and done gets its result. It belongs to a claim, for which Close waits.
func (c *Checks) Start(calls *send.Counter, done func(ctx context.Context, err error)) {
	if c.closed.Err() != nil || !c.runs.CompareAndSwap(false, true) {
		return
	}
	calls.Enter()
	go func() {
		defer calls.Leave()
		defer c.runs.Store(false)
		ctx, cancel := context.WithTimeout(c.closed, patience)
		defer cancel()
		done(ctx, c.run(ctx))
	}()
}

// run makes one check. A panic is a failure.
func (c *Checks) run(ctx context.Context) (err error) {
	defer send.Recover(&err)
	return c.check(ctx)
}

// Close ends the check that runs. No other begins.
func (c *Checks) Close() { c.close() }
