package redisstore

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime/debug"
	"time"

	"github.com/redis/go-redis/v9"
)

// batch is what one worker sends as one pipeline.
type batch struct {
	members []redis.Cmder
	latest  time.Time // when the last of the callers gives up
	endless bool      // one of them never does
	began   time.Time
	stalled bool // the lane's: it takes longer than its patience
}

// add takes c along, unless its caller has given up already. Such a caller finds
// its command neither queued nor written.
func (b *batch) add(c *command) {
	select {
	case <-c.done:
		return
	default:
	}
	deadline := c.seat.deadline
	if deadline.IsZero() {
		b.endless = true
	} else if deadline.After(b.latest) {
		b.latest = deadline
	}
	b.members = append(b.members, c)
}

// run sends the batch and settles all of it. Nobody's context is the batch's: it
// ends when its last caller's does, so that none cuts off the others.
func (b *batch) run(server *redis.Client) (err error) {
	ctx, cancel := context.Background(), context.CancelFunc(func() {}) //nolint:forbidigo // it serves many callers, and outlives some
	if !b.endless {
		ctx, cancel = context.WithDeadline(ctx, b.latest)
	}
	err = errUnsettled
	defer func() {
		cancel()
		if r := recover(); r != nil {
			err = fmt.Errorf("panic in a hook of the client: %v", r)
			slog.Default().Error("redisstore: "+err.Error(), "stack", string(debug.Stack()))
		}
		b.settle(err)
	}()
	pipe := server.Pipeline()
	_ = pipe.BatchProcess(ctx, b.members...)
	_, err = pipe.Exec(ctx)
	return err
}

// errUnsettled is for a hook that ends its goroutine.
var errUnsettled = errors.New("a hook of the client did not return")

// settle settles those that have got no reply, with their own error or else with
// that of the batch, and empties the batch.
func (b *batch) settle(err error) {
	for _, m := range b.members {
		c := m.(*command) //nolint:errcheck,forcetypeassert // nothing else is added
		if own := c.Err(); own != nil {
			c.settle(own)
		} else {
			c.settle(err)
		}
	}
	clear(b.members)
	b.members, b.latest, b.endless = b.members[:0], time.Time{}, false
}
