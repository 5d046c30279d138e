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

// Batch holds the commands of one round trip, and is the context of the round trip. The end of
// one caller does not end it, since the others still wait. Its deadline is the latest of all
// callers. If there is one caller, it has the caller's values.
type Batch struct {
	context.Context //nolint:containedctx // for its values

	members     []redis.Cmder
	room        [1]redis.Cmder // most batches need no more
	began       time.Time
	until       time.Time
	overtakenBy int  // later batches that were answered before it
	direct      bool // its only caller sends it
	limited     bool // a member has waited for the window
	filled      bool // the window was full after its departure
	inFlight    int  // commands in flight after its departure
	windowSize  int  // the size of the window at its departure
	large       bool // its only member is large
	outer       bool // the group calls transmit, and not the innermost hook of the client

	done  chan struct{}
	over  atomic.Bool
	sends atomic.Int32 // sends by the client; negative when the batch is over
	ended atomic.Int32 // sends that have returned
	cause error        // the end of the first send
}

func (b *Batch) begin(now time.Time) *Batch {
	b.began, b.done, b.members = now, make(chan struct{}), b.room[:0]
	return b
}

// Commands returns the commands that share the round trip.
func (b *Batch) Commands() []redis.Cmder { return b.members }

func (b *Batch) add(c *Command) {
	b.members, c.batch, c.state = append(b.members, c), b, sent
	if b.Context = c.caller; len(b.members) > 1 {
		b.Context = context.Background() //nolint:forbidigo // without values
	}
	if c.deadline.After(b.until) {
		b.until = c.deadline
	}
}

// Deadline returns the deadline that the client obeys while it writes and reads.
func (b *Batch) Deadline() (time.Time, bool) { return b.until, true }

// Done is closed at the deadline, and when the round trip is over.
func (b *Batch) Done() <-chan struct{} { return b.done }

// ErrTimeOver ends a batch that the client has not begun to write. A batch that it has begun
// to write ends with an error of the connection.
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

// transmit lets next send the batch, unless the batch is over. It is the last step before the
// server, inside all hooks of the client: a hook may answer in place of the server, send the batch
// again or in parts, or go on with it after the hook has returned.
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

// running takes the place of the number of sends if a send has not returned yet.
const running = -1

// close ends b, and returns the number of sends.
func (b *Batch) close() (sends int32) {
	b.end()
	if sends = b.sends.Swap(math.MinInt32 / 2); b.ended.Load() != sends {
		return running
	}
	return sends
}

// outcome returns the outcome of c. sends is the number of sends of b, and why is their error.
// replied says that the server has answered c.
func (b *Batch) outcome(c *Command, sends int32, why error) (answer any, err error, replied bool) {
	if sends == running { // a send that has not returned may still write the outcome
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
