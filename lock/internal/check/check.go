// Package check checks a store from time to time while it is in use: an operator can change
// a server's settings after the start of this process.
package check

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/httplatch/httplatch/lock/internal/clock"
	"github.com/httplatch/httplatch/lock/internal/send"
)

// patience bounds one check, of about ten round trips.
const patience = 5 * time.Second

// Checks repeat the check of a store. Claims begin them, and there is no timer: a Locker
// that is not closed keeps nothing alive. The zero value checks nothing.
type Checks struct {
	check func(ctx context.Context) error
	every time.Duration
	due   atomic.Int64           // the moment of the next check
	found atomic.Pointer[string] // the class of the last result

	mu     sync.Mutex
	cancel context.CancelFunc // of the check that runs
	closed bool
}

// Init sets the check, and the time between two checks.
func (c *Checks) Init(check func(ctx context.Context) error, every time.Duration) {
	c.check, c.every = check, every
	c.due.Store(int64(clock.Now().Add(every)))
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
// and done gets its result.
func (c *Checks) Start(calls *send.Counter, done func(ctx context.Context, err error)) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed || c.cancel != nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), patience) //nolint:forbidigo // Close ends it
	c.cancel = cancel
	calls.Enter()
	go func() {
		defer calls.Leave()
		defer c.end()
		done(ctx, c.run(ctx))
	}()
}

// run makes one check. A panic is a failure.
func (c *Checks) run(ctx context.Context) (err error) {
	defer send.Recover(&err)
	return c.check(ctx)
}

func (c *Checks) end() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.cancel()
	c.cancel = nil
}

// Close ends the check that runs. No other begins.
func (c *Checks) Close() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed = true; c.cancel != nil {
		c.cancel()
	}
}
