package lock

import (
	"context"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/httplatch/httplatch/lock/internal/clock"
	"github.com/httplatch/httplatch/lock/internal/send"
)

const (
	// defaultCheckEvery is how often a store in use is checked.
	defaultCheckEvery = time.Minute

	// checkPatience bounds one check: of some ten round trips.
	checkPatience = 5 * time.Second
)

// checks repeat the check of a store while it is in use: an operator can change a server's
// settings after the start of this process. They are begun by claims and have no timer, so
// that a Locker that is not closed keeps nothing alive. The zero value checks nothing.
type checks struct {
	store Checker
	every time.Duration
	due   atomic.Int64           // the moment of the next check
	found atomic.Pointer[string] // the class of what the last one has found

	mu     sync.Mutex
	cancel context.CancelFunc // of the check that runs
	closed bool
}

// class names the failure that the last check has found, "" for none.
func (c *checks) class() string {
	if found := c.found.Load(); found != nil {
		return *found
	}
	return ""
}

// checkAt checks the store if that is due at at. Of callers at the same time one starts it.
func (l *Locker) checkAt(at clock.Moment) {
	c := &l.core.checks
	due := c.due.Load()
	if c.store == nil || int64(at) < due || !c.due.CompareAndSwap(due, int64(at.Add(c.every))) {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed || c.cancel != nil {
		return // the one before hangs
	}
	ctx, cancel := context.WithTimeout(context.Background(), checkPatience) //nolint:forbidigo // Close ends it
	c.cancel = cancel
	l.core.sender.Calls.Enter()
	go func() {
		defer l.core.sender.Calls.Leave()
		defer c.end()
		l.checked(ctx, c.check(ctx))
	}()
}

// check is one check, in which a panic is a failure.
func (c *checks) check(ctx context.Context) (err error) {
	defer send.Recover(&err)
	return c.store.Check(ctx)
}

// end is for the check that ran.
func (c *checks) end() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.cancel()
	c.cancel = nil
}

// close ends the check that runs, and begins no other.
func (c *checks) close() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed = true; c.cancel != nil {
		c.cancel()
	}
}

// checked logs what a check has found if it is not of the class that the one before has
// found. A check that did not reach the server has found nothing out; calls that do not
// are logged themselves.
func (l *Locker) checked(ctx context.Context, err error) {
	class := Class(err)
	switch class {
	case "dial", "silent", "connection", "handshake", classCancelled:
		return
	}
	before := l.core.checks.class()
	l.core.checks.found.Store(&class)
	switch {
	case class == before:
	case err != nil:
		l.cfg.logger.LogAttrs(ctx, levelError, "lock: the store failed its check", slog.String("class", class), slog.Any("error", err),
			attrDo("do what the error says; the store is checked again every minute in which it is used, and others of this class are not logged"))
	default:
		l.cfg.logger.LogAttrs(ctx, slog.LevelInfo, "lock: the store has passed its check again", slog.String("class", before))
	}
}
