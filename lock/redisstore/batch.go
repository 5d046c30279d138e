package redisstore

import (
	"context"
	"errors"
	"fmt"
	"math"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/httplatch/httplatch/lock"
	"github.com/httplatch/httplatch/lock/internal/send"
)

// batch is what has one round trip, and its context. No caller's end is its end,
// so that none cuts off the others; its deadline is the latest of theirs. Of a
// single caller it has the values.
type batch struct {
	members []redis.Cmder
	room    [1]redis.Cmder  // of most
	values  context.Context //nolint:containedctx // b is one itself
	began   time.Time
	until   time.Time
	endless bool // a caller has no deadline
	direct  bool // it is sent by its only caller
	limited bool // a member has waited for the window
	outer   bool // transmit is around the client, not in it

	done  chan struct{}
	why   atomic.Pointer[error] // that it is done; set before
	sends atomic.Int32          // how often the client has sent it; negative when it is over
	ended atomic.Int32          // how many of those have returned
	cause error                 // how the first of them ended
}

func (b *batch) begin(now time.Time) *batch {
	b.began, b.done, b.members = now, make(chan struct{}), b.room[:0]
	return b
}

func (b *batch) add(c *command) {
	b.members, c.batch, c.state = append(b.members, c), b, sent
	if b.values = nil; len(b.members) == 1 {
		b.values = c.caller
	}
	if c.deadline.IsZero() {
		b.endless = true
	} else if c.deadline.After(b.until) {
		b.until = c.deadline
	}
}

// errTimeOver is how the client ends a batch that it has not begun to write. What
// it has begun to write ends with an error of the connection.
var errTimeOver = fmt.Errorf("the connection was not ready in time: %w", context.DeadlineExceeded)

// end ends b as a context.
func (b *batch) end(why error) {
	if b.why.CompareAndSwap(nil, &why) {
		close(b.done)
	}
}

// Deadline is one that the client obeys while it writes and reads.
func (b *batch) Deadline() (time.Time, bool) { return b.until, !b.endless }

// Done is closed at the deadline.
func (b *batch) Done() <-chan struct{} { return b.done }

// Err is not nil when Done is closed.
func (b *batch) Err() error {
	if why := b.why.Load(); why != nil {
		return *why
	}
	return nil
}

// Value is for hooks.
func (b *batch) Value(key any) any {
	if b.values == nil {
		return nil
	}
	return b.values.Value(key)
}

// transmit is the innermost way to the server: next sends the batch, unless it is
// over. Hooks of the client may answer in place of the server, send the batch
// again, or go on with it after they have returned.
func (b *batch) transmit(next func() error) error {
	nth := b.sends.Add(1)
	if nth <= 0 {
		return errOver
	}
	defer b.ended.Add(1)
	if nth > 1 {
		return next()
	}
	b.cause = errUnsettled
	b.cause = next()
	return b.cause
}

var (
	errOver    = errors.New("the round trip is over")
	errSkipped = errors.New("a hook of the client answered in place of the server")
	errRunning = errors.New("a hook of the client did not wait for the server")
)

// close ends b for those that still have it, and returns how often it was sent.
func (b *batch) close() (sends int32) {
	sends = b.sends.Swap(math.MinInt32 / 2)
	if b.ended.Load() != sends {
		return running
	}
	return sends
}

// running is how often a batch was sent that a hook does not wait for.
const running = -1

// expire ends the wait of callers whose time is over, and of those that rather
// send again.
func (b *batch) expire(now time.Time) {
	if !b.endless && !now.Before(b.until) {
		b.end(errTimeOver)
	}
	if b.direct {
		return // its caller waits for the client, which obeys that end
	}
	for _, m := range b.members {
		c := m.(*command) //nolint:errcheck,forcetypeassert // nothing else is added
		if c.state == sent && c.try != nil && (c.overdue(now) || c.try.GiveUp(now.Sub(b.began))) {
			c.part(send.ErrGivenUp, send.InFlight(c.try))
			c.over <- struct{}{}
		}
	}
}

// outcome is what became of c, if b was sent so many times and was over with
// failure. replied says that the server has answered c.
func (b *batch) outcome(c *command, sends int32, failure error) (answer any, err error, replied bool) {
	switch own := c.Err; {
	case sends == running: // its outcome is still to be written down
		return nil, unknown("answer", errRunning), false
	case sends == 0 && (c.replied || own() == nil && failure == nil):
		return nil, notSent(errSkipped), false
	case c.replied && own() == nil:
		return c.reply, nil, true
	case c.replied:
		return nil, failed(own(), sends > 1 || c.lost), true
	case own() != nil:
		failure = own()
	}
	switch {
	case sends == 0:
		return nil, notSent(failure), false
	case sends == 1 && !c.lost && neverWritten(b.cause):
		return nil, notSent(b.cause), false
	case failure == nil:
		return nil, unknown("answer", errSkipped), false
	default:
		return nil, failed(failure, sends > 1), false
	}
}

// ending is what an outcome says to those that count what is in flight.
func ending(err error, replied bool) send.Outcome {
	switch {
	case errors.Is(err, lock.ErrNotApplied):
		return send.Nothing
	case replied:
		return send.Answered
	default:
		return send.Lost
	}
}
