package lock

import (
	"context"
	"errors"
	"fmt"
	"hash/maphash"
	"sync/atomic"
	"time"
)

// memoryShards is how many parts a memory store is locked in. A power of two.
const memoryShards = 64

// memory is the Store of one process.
type memory struct {
	base   time.Time // all times are nanoseconds since then, so that setting the wall clock ends no lease
	seed   maphash.Seed
	room   memoryRoom
	fences atomic.Int64
	shards [memoryShards]memoryShard
}

var (
	_ Store     = (*memory)(nil)
	_ Inspector = (*memory)(nil)
)

// NewMemory returns a [Store] that keeps its entries in this process: for one
// process, and for tests. A restart forgets everything. It is also an
// [Inspector].
//
// It has no goroutine and nothing to close. Entries that are over are removed
// by later calls, a few at a time, and their memory is given back. It is
// bounded, by 1,000,000 entries and 256 MiB unless [WithLimits] says
// otherwise, of which one scope gets a quarter unless [WithScopeShare] says
// otherwise, and refuses a claim with [ErrFull] rather than forget a live
// entry of any state. Leases are timed by the monotonic clock. Fences grow
// across restarts too, as far as the wall clock does.
func NewMemory(opts ...MemoryOption) Store {
	cfg := memoryConfig{entries: defaultMemoryEntries, bytes: defaultMemoryBytes, share: defaultScopeShare}
	for _, o := range opts {
		if o == nil {
			panic("lock: NewMemory: nil MemoryOption")
		}
		o.applyMemory(&cfg)
	}
	m := &memory{base: time.Now(), seed: maphash.MakeSeed()}
	m.room.limit(cfg)
	// A resource that compares fences may outlive this process.
	m.fences.Store(m.base.UnixMicro())
	for i := range m.shards {
		m.shards[i].init(m)
	}
	return m
}

// prompt marks a store whose calls never wait for anything. A Locker makes
// them on its caller's goroutine, without a timer: there is nothing to bound.
func (*memory) prompt() bool { return true }

// MaxLag returns 0: no call has an effect after it returned.
func (*memory) MaxLag() time.Duration { return 0 }

func (m *memory) now() int64 { return int64(time.Since(m.base)) }

// lock locks the shard of key, and returns the time as it is under the lock, so that it
// never goes back for a shard.
func (m *memory) lock(key string) (s *memoryShard, now int64) {
	s = &m.shards[maphash.String(m.seed, key)%memoryShards]
	s.mu.Lock()
	now = m.now()
	s.expire(now, visitsPerCall)
	return s, now
}

// scope is the hash of a scope, 0 of none.
func (m *memory) scope(name string) uint32 {
	if name == "" {
		return 0
	}
	return max(uint32(maphash.String(m.seed, name)), 1) //nolint:gosec // any half of a hash is one
}

// Claim is part of [Store].
func (m *memory) Claim(ctx context.Context, key string, c Claim) (Entry, error) {
	if err := checkClaim(ctx, key, &c); err != nil {
		return Entry{}, err
	}
	r, now, err := m.claim(key, &c)
	if errors.Is(err, ErrFull) {
		m.sweep()
		r, now, err = m.claim(key, &c)
	}
	if err != nil {
		return Entry{}, fmt.Errorf("%w: %w", ErrNotApplied, err)
	}
	return r.entry(now), nil
}

// claim returns what is under key afterwards. Like the other methods with a
// shard's lock it returns a copy of the record, so that what may be long in it
// is copied outside the lock.
func (m *memory) claim(key string, c *Claim) (memoryRecord, int64, error) {
	s, now := m.lock(key)
	defer s.mu.Unlock()
	old := s.live(key, now)
	if old != nil && (old.state(now) != Abandoned || c.Replaces != old.token()) {
		return *old, now, nil
	}
	if old == nil && c.Replaces != "" {
		return memoryRecord{}, now, nil
	}
	cost, scope := claimCost(key, c), m.scope(c.Scope)
	var err error
	if old == nil {
		err = m.room.take(scope, 1, cost)
	} else {
		scope = old.scope // whose share has the entry, which a takeover only continues
		err = m.room.grow(scope, 0, cost-old.cost())
	}
	if err != nil {
		return memoryRecord{}, 0, err
	}
	r := s.put(key, c, scope, now, old)
	if c.Fenced {
		r.fence = m.fences.Add(1)
	}
	return *r, now, nil
}

// Renew is part of [Store].
func (m *memory) Renew(ctx context.Context, key string, c Claim) (ok bool, err error) {
	if err := checkClaim(ctx, key, &c); err != nil {
		return false, err
	}
	s, now := m.lock(key)
	defer s.mu.Unlock()
	r := s.owned(key, c.Token, now)
	if r == nil || r.settled {
		return false, nil
	}
	s.end(r, r.prolong(later(now, c.Lease), int64(c.Linger)))
	return true, nil
}

// Release is part of [Store].
func (m *memory) Release(ctx context.Context, key, token string) (ok bool, err error) {
	return m.remove(ctx, key, token, false)
}

// remove removes the entry of token, a receipt only if receipts is set.
func (m *memory) remove(ctx context.Context, key, token string, receipts bool) (ok bool, err error) {
	if err := checkCall(ctx, key, token); err != nil {
		return false, err
	}
	s, now := m.lock(key)
	defer s.mu.Unlock()
	r := s.owned(key, token, now)
	if r == nil || r.settled && !receipts {
		return false, nil
	}
	s.drop(r)
	return true, nil
}

// Get is part of [Store].
func (m *memory) Get(ctx context.Context, key string) (Entry, error) {
	if err := checkKey(ctx, key); err != nil {
		return Entry{}, err
	}
	r, now := m.get(key)
	return r.entry(now), nil
}

func (m *memory) get(key string) (memoryRecord, int64) {
	s, now := m.lock(key)
	defer s.mu.Unlock()
	if r := s.live(key, now); r != nil {
		return *r, now
	}
	return memoryRecord{}, now
}

// sweep removes everything that is over.
func (m *memory) sweep() {
	for i := range m.shards {
		m.shards[i].sweep()
	}
}
