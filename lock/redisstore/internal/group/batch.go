package group

import (
	"context"
	"errors"
	"fmt"
	"math"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/httplatch/httplatch/lock/redisstore/internal/failure"
)

// Batch is what has one round trip, and its context. No caller's end is its end,
// so that none cuts off the others; its deadline is the latest of theirs. Of a
// single caller it has the values.
type Batch struct {
	context.Context //nolint:containedctx // for its values

	members   []redis.Cmder
	room      [1]redis.Cmder // of most
	began     time.Time
	until     time.Time
	overtaken int  // by so many that left later and were answered
	direct    bool // it is sent by its only caller
	limited   bool // a member has waited for the window
	filled    bool // the window was full when it had left
	out       int  // commands that were out then, its own included
	behind    int  // the size of the window then
	large     bool // it has one member, which takes long
	outer     bool // Transmit is around the client, not in it

	done  chan struct{}
	over  atomic.Bool
	sends atomic.Int32 // how often the client has sent it; negative when it is over
	ended atomic.Int32 // how many of those have returned
	cause error        // how the first of them ended
}

func (b *Batch) begin(now time.Time) *Batch {
	b.began, b.done, b.members = now, make(chan struct{}), b.room[:0]
	return b
}

// Commands are those that share the round trip.
func (b *Batch) Commands() []redis.Cmder { return b.members }

func (b *Batch) add(c *Command) {
	b.members, c.batch, c.state = append(b.members, c), b, sent
	if b.Context = c.caller; len(b.members) > 1 {
		b.Context = context.Background() //nolint:forbidigo // it has no values
	}
	if c.deadline.After(b.until) {
		b.until = c.deadline
	}
}

// Deadline is one that the client obeys while it writes and reads.
func (b *Batch) Deadline() (time.Time, bool) { return b.until, true }

// Done is closed at the deadline, and when the round trip is over.
func (b *Batch) Done() <-chan struct{} { return b.done }

// ErrTimeOver is how the client ends a batch that it has not begun to write. What
// it has begun to write ends with an error of the connection.
var ErrTimeOver = fmt.Errorf("the connection was not ready in time: %w", context.DeadlineExceeded)

// Err is not nil when Done is closed.
func (b *Batch) Err() error {
	if b.over.Load() {
		return ErrTimeOver
	}
	return nil
}

func (b *Batch) end() {
	if b.over.CompareAndSwap(false, true) {
		close(b.done)
	}
}

// transmit is the innermost way to the server: next sends the batch, unless it is
// over. Hooks of the client may answer in place of the server, send the batch
// again or in parts, or go on with it after they have returned.
func (b *Batch) transmit(next func() error) error {
	nth := b.sends.Add(1)
	if nth <= 0 {
		return errOver
	}
	defer b.ended.Add(1)
	if nth > 1 {
		return next()
	}
	b.cause = failure.ErrUnsettled
	b.cause = next()
	return b.cause
}

var (
	errOver    = errors.New("the round trip is over")
	errSkipped = errors.New("a hook of the client answered in place of the server")
	errRunning = errors.New("a hook of the client did not wait for the server")
)

// running is how often a batch was sent that a hook does not wait for.
const running = -1

// close ends b for those that still have it, and returns how often it was sent.
func (b *Batch) close() (sends int32) {
	b.end()
	if sends = b.sends.Swap(math.MinInt32 / 2); b.ended.Load() != sends {
		return running
	}
	return sends
}

// outcome is what became of c, if b was sent so many times and was over with
// why. replied says that the server has answered c.
func (b *Batch) outcome(c *Command, sends int32, why error) (answer any, err error, replied bool) {
	if sends == running { // its outcome is still to be written down
		return nil, failure.Unknown("answer", errRunning), false
	}
	own := c.Err()
	switch replied = c.replied && sends > 0; {
	case replied && own == nil:
		return c.reply, nil, true
	case own != nil:
		why = own
	case why == nil:
		why = errSkipped
	}
	switch {
	case sends == 0:
		return nil, failure.NotSent(why), false
	case sends == 1 && !c.lost && !replied && neverWritten(b.cause):
		return nil, failure.NotSent(b.cause), false
	default:
		return nil, failure.Failed(why, sends > 1 || c.lost), replied
	}
}
