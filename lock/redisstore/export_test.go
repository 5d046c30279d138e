package redisstore

import (
	"context"
	"slices"
	"sync/atomic"
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
func Name(prefix, key string) (name, kept string) { return (&Store{prefix: prefix}).name(key) }

// KeyOf is the inverse of Name.
func KeyOf(prefix, name string) (key string, ok bool) {
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

// Listening reports whether a store has a goroutine that receives others'
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

func groups(s *Store) []*group { return s.to.all() }

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

// Gather keeps what is queued in the queue until it is let go, as few batches as
// can be then.
func Gather(s *Store) (letGo func()) {
	g := s.to.only
	g.mu.Lock()
	defer g.mu.Unlock()
	before := g.alone
	g.alone = 0
	busy := new(batch).begin(time.Now())
	busy.until = busy.began.Add(endless)
	for range g.most {
		g.batches = append(g.batches, busy)
	}
	return func() {
		g.mu.Lock()
		defer g.mu.Unlock()
		g.alone = before
		g.batches = slices.DeleteFunc(g.batches, func(b *batch) bool { return b == busy })
		if b := g.next(time.Now()); b != nil {
			go g.work(b)
		}
	}
}

// FillQueue makes the queue of a store look full.
func FillQueue(s *Store) (empty func()) {
	g := s.to.only
	letGo := Gather(s)
	g.mu.Lock()
	defer g.mu.Unlock()
	g.ends.len += maxQueued
	return func() {
		g.mu.Lock()
		g.ends.len -= maxQueued
		g.mu.Unlock()
		letGo()
	}
}

// Group is a group before a server that a test plays. The server returns, for a
// batch of names, once it is over; reply is nil for those that got none.
type Group struct{ g *group }

// Serve is a server: it calls reply for each name that it answers, and returns why
// it answers no more.
type Serve func(ctx context.Context, names []string, reply func(name string)) error

func NewGroup(share, batches int, direct bool, serve Serve) *Group {
	may := new(atomic.Bool)
	may.Store(direct)
	return &Group{newGroup(share, batches, true, may, func(b *batch) error {
		var names []string
		byName := make(map[string]*command)
		for _, m := range b.members {
			c := m.(*command) //nolint:forcetypeassert // nothing else is added
			names, byName[c.name] = append(names, c.name), c
		}
		return serve(b, names, func(name string) { byName[name].SetErr(nil) })
	})}
}

// Do makes a call. yields is that of a claim.
func (g *Group) Do(ctx context.Context, name string, yields bool) error {
	c := newCommand(name).with("command", name)
	c.yields = yields
	_, err := g.g.do(ctx, c)
	return err
}

// Close waits for what is out, until ctx ends.
func (g *Group) Close(ctx context.Context) { (&nodes{only: g.g}).close(ctx) }

func (g *Group) Out() int    { return g.count(func(g *group) int { return g.out }) }
func (g *Group) Queued() int { return g.count(func(g *group) int { return g.ends.len + g.claims.len }) }

func (g *Group) count(of func(*group) int) int {
	g.g.mu.Lock()
	defer g.g.mu.Unlock()
	return of(g.g)
}

// MostBatches is how many batches of a store are out at once, at most, and MaxBatch
// how many commands each has.
func MostBatches(s *Store) int { return s.to.only.most }

const MaxBatch = maxBatch

// Bare reports whether client is known to run no code of its user for a command.
func Bare(client *redis.Client) bool { return bind(client).bare.Load() }
