package redisstore

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/httplatch/httplatch/internal/carry"
)

const (
	// shareFrom is from how many commands in flight on sharing is quicker than a
	// connection for each. Below it, a command that waits for others is late.
	shareFrom = 12

	// maxQueued bounds the callers that wait for their round trip to begin.
	maxQueued = 1 << 16

	// maxShared is the size of a command, in bytes, above which it goes alone:
	// those behind it would wait for a receipt of a megabyte.
	maxShared = 16 << 10
)

var errQueueFull = errors.New("too many calls wait for the server")

// lane is the way to one server. While few commands are in flight each goes its
// own way, over a connection of its own. When there are more, they wait in a
// queue, and a few workers take what is there and send it as one pipeline.
//
// A worker ends when the queue is empty. One whose batch stalls is replaced
// meanwhile, so that a connection that is dead costs the members of one batch
// one try, and others twice the patience at most. If it is the connection that stalls,
// and not the server, that try is over as soon as it is clear that it does.
type lane struct {
	server *redis.Client // what batches go through
	alone  sender        // what commands that share nothing go through
	from   int64         // shareFrom, unless a test wants otherwise
	most   int           // workers
	failed func(error)   // is told how commands and batches have failed
	flying atomic.Int64  // commands, on either way

	mu      sync.Mutex
	queue   queue
	workers int
	running []*batch
	stalled int           // of running
	lost    int           // of running: those that are hopeless
	usual   time.Duration // that one takes: half of them take longer, or about
	watched bool
	watch   *time.Timer   // looks for batches that stall, while there are any
	closed  bool          // nothing is shared any more
	idle    chan struct{} // not nil while close waits; closed when there is no worker
}

func newLane(server *redis.Client, alone sender, from int64, failed func(error)) *lane {
	l := &lane{server: server, alone: alone, from: from, most: connections(server.Options()), failed: failed}
	l.watch = time.AfterFunc(time.Hour, l.look)
	l.watch.Stop()
	return l
}

// Process sends cmd, alone or in company.
func (l *lane) Process(ctx context.Context, cmd redis.Cmder) error {
	n := l.flying.Add(1)
	defer l.flying.Add(-1)
	c, ok := cmd.(*command)
	if !ok || n < l.from || c.size() > maxShared || stalls(ctx) > 1 {
		return l.processAlone(ctx, cmd)
	}
	s := c.takeSeat(ctx)
	if err := l.enqueue(c); err != nil {
		c.standUp(s)
		if errors.Is(err, redis.ErrClosed) {
			return l.processAlone(ctx, cmd)
		}
		return err
	}
	if s.done == nil {
		<-s.told
		return c.accept(s)
	}
	select {
	case <-s.told:
		return c.accept(s)
	case <-s.done:
	}
	gone := unwanted(ctx)
	if l.dequeue(c, s) {
		c.standUp(s)
		return gone
	}
	return c.leave(s, gone)
}

func (l *lane) processAlone(ctx context.Context, cmd redis.Cmder) error {
	err := l.alone.Process(ctx, cmd)
	if err != nil {
		l.failed(err)
	}
	return err
}

// stalls is how often the call of ctx has stalled before. One goes first the next
// time. One that stalls even then may well be the reason for it, and shares
// nothing any more.
func stalls(ctx context.Context) int {
	if try, ok := ctx.(*carry.Try); ok {
		return try.Stalls
	}
	return 0
}

func (l *lane) enqueue(c *command) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case l.closed:
		return redis.ErrClosed
	case l.queue.len == maxQueued:
		return errQueueFull
	}
	if stalls(c.ctx) > 0 {
		l.queue.pushFirst(c)
	} else {
		l.queue.push(c)
	}
	l.staff()
	return nil
}

// dequeue takes c out of the queue, if it is not in a batch.
func (l *lane) dequeue(c *command, s *seat) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if s.queued {
		l.queue.remove(c)
		return true
	}
	return s.dropped
}

// close makes commands go their own way from here on, and waits for the workers
// until ctx ends.
func (l *lane) close(ctx context.Context) {
	l.mu.Lock()
	l.closed = true
	if l.workers > 0 && l.idle == nil {
		l.idle = make(chan struct{})
	}
	idle := l.idle
	l.mu.Unlock()
	if idle == nil {
		return
	}
	select {
	case <-idle:
	case <-ctx.Done():
	}
}
