package redisstore

import (
	"context"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/httplatch/httplatch/internal/carry"
)

// batch is what one worker sends as one pipeline.
type batch struct {
	mu      sync.Mutex // of the members' seats, from when they are in until they are settled
	members []redis.Cmder
	latest  time.Time // until when it is followed, unless it is endless
	endless bool      // one of the callers has no deadline

	// The lane's.
	began     time.Time
	stalled   bool // it takes longer than the lane's patience
	overtaken int  // by so many that began later
	hopeless  bool // so many, and for so long, that its connection stalls
}

// add takes c along, unless its caller has given up already. Such a caller finds
// its command neither queued nor written.
func (b *batch) add(c *command, now time.Time) {
	s := c.seat
	select {
	case <-s.done:
		s.dropped = true
		return
	default:
	}
	switch {
	case s.deadline.IsZero():
		b.endless = true
	case !now.Before(s.deadline):
		c.expire()
		return
	case s.keep.After(b.latest):
		b.latest = s.keep
	}
	c.batch, c.piped = b, true
	b.members = append(b.members, c)
}

// evict tells members that they are not to wait any longer: those whose time is
// over, and if the batch is hopeless, those that would rather try again.
func (b *batch) evict(now time.Time, hopeless bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, m := range b.members {
		c := m.(*command) //nolint:errcheck,forcetypeassert // nothing else is added
		switch s := c.seat; {
		case s == nil, s.parted.Load():
		case !s.deadline.IsZero() && !now.Before(s.deadline):
			c.evict(context.DeadlineExceeded)
		case hopeless && s.moves:
			c.evict(carry.ErrStalled)
		}
	}
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
			err = hookPanic(r)
		}
		b.settle(err)
	}()
	pipe := server.Pipeline()
	_ = pipe.BatchProcess(ctx, b.members...)
	_, err = pipe.Exec(ctx)
	return err
}

// settle settles those that have got no reply, with their own error or else with
// that of the batch, and empties the batch.
func (b *batch) settle(err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
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
