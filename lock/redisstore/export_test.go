package redisstore

import (
	"context"
	"time"

	"github.com/httplatch/httplatch/lock"
)

const (
	MinimalACL = minimalACL
	ClusterACL = clusterACL
	NotifyACL  = notifyACL
	LargeACL   = largeACL

	LargeReceipt = largeReceipt
)

var Dialer = dialer

// Name is the Redis key of the entry of key.
func Name(prefix, key string) (name string, hashed bool) { return (&Store{prefix: prefix}).name(key) }

// KeyOf is the inverse of Name.
func KeyOf(prefix, name string) (key string, hashed, ok bool) {
	return (&Store{prefix: prefix}).keyOf(name)
}

// Encode is the value of a held entry.
func Encode(c lock.Claim, key string) []byte {
	v := newValue(c, key)
	return v.appendTo(nil)
}

// Decode is the entry of a value, and the value that it encodes to again.
func Decode(raw string) (e lock.Entry, linger time.Duration, again []byte, err error) {
	v, err := decode(raw)
	if err != nil {
		return lock.Entry{}, 0, nil, err
	}
	return v.entry(-1), v.linger, v.appendTo(nil), nil
}

// SkewClocks makes a store believe that all servers' clocks are d ahead of what
// they are.
func SkewClocks(s *Store, d time.Duration) {
	s.clocks.byNode.Range(func(_, known any) bool {
		c, ok := known.(*clock)
		if !ok {
			return false
		}
		c.mu.Lock()
		defer c.mu.Unlock()
		c.low += d
		c.high += d
		return true
	})
}

// Listening reports whether a store has a goroutine that hears of others'
// releases.
func Listening(s *Store) bool {
	s.notices.mu.Lock()
	defer s.notices.mu.Unlock()
	return s.notices.listener != nil
}

// Topics is how many keys are watched.
func Topics(s *Store) int {
	s.notices.mu.Lock()
	defer s.notices.mu.Unlock()
	return len(s.notices.topics)
}

// ShareFrom sets from how many commands in flight on a store shares round
// trips: 1 is always, Never is never.
func ShareFrom(s *Store, n int64) {
	switch to := s.to.(type) {
	case *lane:
		to.from = n
	case *lanes:
		to.from = n
		for _, l := range to.byNode {
			l.from = n
		}
	}
}

// Never is more commands than there are.
const Never = 1 << 62

// Workers is how many workers a store of a single server has.
func Workers(s *Store) int {
	l := laneOf(s)
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.workers
}

// Queued is how many commands wait for one.
func Queued(s *Store) int {
	l := laneOf(s)
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.queue.len
}

// Gather keeps what is queued from being taken until it is let go, by a single
// worker then.
func Gather(s *Store) (letGo func()) {
	l := laneOf(s)
	l.mu.Lock()
	defer l.mu.Unlock()
	l.workers += steadyWorkers
	return func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.workers -= steadyWorkers
		l.staff()
	}
}

// TakeAfter takes all that is queued into a batch, after gaveUp and before a
// caller can take anything out.
func TakeAfter(s *Store, gaveUp func()) (taken int) {
	l := laneOf(s)
	l.mu.Lock()
	defer l.mu.Unlock()
	gaveUp()
	b := new(batch)
	for c := l.queue.pop(); c != nil; c = l.queue.pop() {
		b.add(c, time.Now())
	}
	return len(b.members)
}

// FillQueue makes the queue of a store look full.
func FillQueue(s *Store) (empty func()) {
	l := laneOf(s)
	l.mu.Lock()
	defer l.mu.Unlock()
	l.queue.len += maxQueued
	l.workers += steadyWorkers
	return func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.queue.len -= maxQueued
		l.workers -= steadyWorkers
	}
}

func laneOf(s *Store) *lane { return s.to.(*lane) } //nolint:forcetypeassert // callers know

const (
	MaxWorkers  = maxWorkers
	CalmWorkers = calmWorkers
	MaxShared   = maxShared
)

// Queue is that of a lane, with commands that have a deadline and nothing else.
type Queue struct{ queue queue }

// Command is one of a Queue.
type Command = command

func (q *Queue) Push(deadline time.Time) *Command      { return pushed(q.queue.push, deadline) }
func (q *Queue) PushFirst(deadline time.Time) *Command { return pushed(q.queue.pushFirst, deadline) }
func (q *Queue) Remove(c *Command)                     { q.queue.remove(c) }
func (q *Queue) Pop() *Command                         { return q.queue.pop() }
func (q *Queue) Expired(now time.Time) []*Command      { return q.queue.expired(now) }
func (q *Queue) Len() int                              { return q.queue.len }
func (q *Queue) Soonest() time.Time                    { return q.queue.soonest }

func pushed(push func(*command), deadline time.Time) *command {
	c := &command{seat: &seat{deadline: deadline}}
	push(c)
	return c
}

// All is what is queued, seen from the first and from the last.
func (q *Queue) All() (forth, back []*Command) {
	for c := q.queue.first; c != nil; c = c.seat.next {
		forth = append(forth, c)
	}
	for c := q.queue.last; c != nil; c = c.seat.prev {
		back = append(back, c)
	}
	return forth, back
}

// InQueue reports whether a command takes itself for a queued one.
func InQueue(c *Command) bool { return c.seat.queued }

// Lost is how many of a store's batches count as stalled for good.
func Lost(s *Store) int {
	l := laneOf(s)
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.lost
}

// Capacity is how many commands a store has on their way at once when many wait.
func Capacity(s *Store) int {
	l := laneOf(s)
	l.mu.Lock()
	defer l.mu.Unlock()
	l.queue.len += maxQueued
	defer func() { l.queue.len -= maxQueued }()
	return min(l.wanted(), l.most-l.lost) * l.room()
}

// Lose makes it look as if one more did.
func Lose(s *Store) {
	l := laneOf(s)
	l.mu.Lock()
	defer l.mu.Unlock()
	l.lost++
}

// MostWorkers is how many workers a store has at most.
func MostWorkers(s *Store) int { return laneOf(s).most }

// PipelinePool is the size of the pool that a store's client was given for
// pipelines.
func PipelinePool(s *Store) int {
	if s.cluster != nil {
		return s.cluster.Options().PipelinePoolSize
	}
	return laneOf(s).server.Options().PipelinePoolSize
}

// ReadTimeout is for how long a store's client waits for an answer.
func ReadTimeout(s *Store) time.Duration { return laneOf(s).server.Options().ReadTimeout }

// Berth is a command without a lane: in a batch, or as one that was taken out of
// the queue.
type Berth struct {
	command *command
	seat    *seat
	batch   batch
}

func NewBerth(ctx context.Context, queued bool) *Berth {
	b := &Berth{command: newCommand(ctx, "name")}
	b.seat = b.command.takeSeat(ctx)
	if !queued {
		b.batch.add(b.command, time.Now())
	}
	return b
}

// Caller waits for the outcome, or leaves without it, and reports whether it has
// left something behind.
func (b *Berth) Caller(leaves bool) (left bool) {
	if leaves {
		_ = b.command.leave(b.seat, context.Canceled)
	} else {
		<-b.seat.told
		_ = b.command.accept(b.seat)
	}
	return b.command.left
}

func (b *Berth) Expire() { b.command.expire() }
func (b *Berth) Evict()  { b.batch.evict(time.Now(), true) }
func (b *Berth) Settle() { b.batch.settle(nil) }

func (b *Berth) Write() {
	if b.command.hand() {
		_, _ = b.command.payload.MarshalBinary()
	}
}

// Clock is what a store knows of a server's clock.
type Clock struct{ clock }

func NewClock(base time.Time) *Clock { return &Clock{clock{base: base}} }

func (c *Clock) Heard(sent, received time.Time, now time.Duration) { c.heard(sent, received, now) }
func (c *Clock) At(t time.Time) time.Duration                      { return time.Duration(c.at(t)) * time.Microsecond }
