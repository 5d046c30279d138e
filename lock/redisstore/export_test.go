package redisstore

import (
	"maps"
	"slices"
	"time"

	"github.com/redis/go-redis/v9"

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
	for _, g := range groups(s) {
		g.clock.mu.Lock()
		g.clock.low += d
		g.clock.high += d
		g.clock.mu.Unlock()
	}
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

// Alone sets up to how many commands in flight each has a round trip of its own:
// 0 is none, Never is any.
func Alone(s *Store, n int) {
	for _, g := range groups(s) {
		g.mu.Lock()
		g.alone = n
		g.mu.Unlock()
	}
	if s.to.cluster != nil {
		s.to.alone = n
	}
}

// Many is more commands than there are.
const Many = 1 << 30

func groups(s *Store) []*group {
	if s.to.only != nil {
		return []*group{s.to.only}
	}
	s.to.mu.RLock()
	defer s.to.mu.RUnlock()
	return slices.Collect(maps.Values(s.to.byMaster))
}

// Clock is what a store knows of a server's clock.
type Clock struct{ clock }

func NewClock(base time.Time) *Clock { return &Clock{clock{base: base}} }

func (c *Clock) Heard(sent, received time.Time, now time.Duration) { c.heard(sent, received, now) }
func (c *Clock) At(t time.Time) time.Duration                      { return time.Duration(c.at(t)) * time.Microsecond }

// MaxConnections bounds the batches of a store that are out at once.
const MaxConnections = maxConnections

// PipelinePool is the size of the pool that a store's client was given for
// pipelines.
func PipelinePool(s *Store) int {
	if s.cluster != nil {
		return s.cluster.Options().PipelinePoolSize
	}
	return s.client.(*redis.Client).Options().PipelinePoolSize //nolint:forcetypeassert // callers know
}

// ReadTimeout is for how long a store's client waits for an answer.
func ReadTimeout(s *Store) time.Duration {
	return s.client.(*redis.Client).Options().ReadTimeout //nolint:forcetypeassert // callers know
}

// Out is how many commands of a store are in flight, Queued how many wait for that.
func Out(s *Store) (n int) {
	return count(s, func(g *group) int { return g.out })
}

func Queued(s *Store) (n int) {
	return count(s, func(g *group) int { return g.ends.len + g.claims.len })
}

func count(s *Store, of func(g *group) int) (n int) {
	for _, g := range groups(s) {
		g.mu.Lock()
		n += of(g)
		g.mu.Unlock()
	}
	return n
}
