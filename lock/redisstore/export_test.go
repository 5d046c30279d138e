package redisstore

import (
	"time"

	"github.com/httplatch/httplatch/lock"
)

const (
	MinimalACL = minimalACL
	ClusterACL = clusterACL
	NotifyACL  = notifyACL
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
