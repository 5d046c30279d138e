// Package memstore keeps the entries of a Locker in this process: for one process, and
// for tests. A restart forgets everything.
//
// A store has no goroutine and nothing to close. Later calls remove entries that have
// ended, a few at a time, and free their memory. The store is bounded to 1,000,000 entries
// and 256 MiB ([WithLimits]), and one scope to a quarter of that ([WithScopeShare]). At its
// bounds it refuses claims with [lock.ErrFull], and never forgets a live entry of any state.
// Leases are timed by the monotonic clock. Fences also grow across restarts, as far as the
// wall clock does.
package memstore

import (
	"context"
	"errors"
	"fmt"
	"hash/maphash"
	"sync/atomic"
	"time"

	"github.com/httplatch/httplatch/lock"
	"github.com/httplatch/httplatch/lock/internal/clock"
)

// shardCount is the number of shards, a power of two.
const shardCount = 64

// Store keeps its entries in this process. It is a [lock.Inspector], [lock.Amender]
// and [lock.SetClaimer]. It is safe for concurrent use.
type Store struct {
	seed   maphash.Seed
	room   room
	fences atomic.Int64
	shards [shardCount]shard
}

var (
	_ lock.Store      = (*Store)(nil)
	_ lock.Inspector  = (*Store)(nil)
	_ lock.Amender    = (*Store)(nil)
	_ lock.SetClaimer = (*Store)(nil)
	_ lock.Describer  = (*Store)(nil)
)

// New returns an empty store, with the limits of [WithLimits] and [WithScopeShare].
func New(opts ...Option) *Store {
	cfg := config{entries: defaultEntries, bytes: defaultBytes, share: defaultScopeShare}
	for _, o := range opts {
		if o == nil {
			panic("memstore: nil Option")
		}
		o.apply(&cfg)
	}
	m := &Store{seed: maphash.MakeSeed()}
	m.room.limit(cfg)
	// A resource that compares fences may outlive this process.
	m.fences.Store(time.Now().UnixMicro())
	for i := range m.shards {
		m.shards[i].init(m)
	}
	return m
}

// Describe is part of [lock.Describer].
func (m *Store) Describe() lock.Description {
	return lock.Description{Local: true, Entries: int(m.room.entries.Load()), Bytes: m.room.bytes.Load()}
}

// lock locks the shard of key, and then reads the clock, so that the time in a shard never goes
// back.
func (m *Store) lock(key string) (s *shard, now clock.Moment) {
	s = m.shardOf(key)
	s.mu.Lock()
	now = clock.Now()
	s.expire(now, visitsPerCall)
	return s, now
}

// scope returns the hash of a scope, 0 for none.
func (m *Store) scope(name string) uint32 {
	if name == "" {
		return 0
	}
	return max(uint32(maphash.String(m.seed, name)), 1) //nolint:gosec // any half of a hash is one
}

// Claim is part of [lock.Store].
func (m *Store) Claim(ctx context.Context, key string, c lock.Claim) (lock.Entry, error) {
	if err := checkClaim(ctx, key, &c); err != nil {
		return lock.Entry{}, err
	}
	r, now, err := m.claim(key, &c)
	if errors.Is(err, lock.ErrFull) {
		m.sweep()
		r, now, err = m.claim(key, &c)
	}
	if err != nil {
		return lock.Entry{}, fmt.Errorf("%w: %w", lock.ErrNotApplied, err)
	}
	return r.entry(now), nil
}

// claim returns the record under key afterwards. Like all methods that lock a shard, it returns
// a copy of the record. Its long texts are copied outside the lock.
func (m *Store) claim(key string, c *lock.Claim) (record, clock.Moment, error) {
	s, now := m.lock(key)
	defer s.mu.Unlock()
	old := s.live(key, now)
	if old != nil && !old.yieldsTo(c, now) {
		return *old, now, nil
	}
	if old == nil && c.Replaces != "" {
		return record{}, now, nil
	}
	cost, scope := claimCost(key, c), m.scope(c.Scope)
	var err error
	if old == nil {
		err = m.room.take(scope, 1, cost)
	} else {
		scope = old.scope // a takeover continues the entry, which is counted for its old scope
		err = m.room.grow(scope, 0, cost-old.cost())
	}
	if err != nil {
		return record{}, 0, err
	}
	r := s.put(key, c, scope, now, old)
	if c.Fenced {
		r.fence = m.fences.Add(1)
	}
	return *r, now, nil
}

// Renew is part of [lock.Store].
func (m *Store) Renew(ctx context.Context, key string, c lock.Claim) (ok bool, err error) {
	if err := checkClaim(ctx, key, &c); err != nil {
		return false, err
	}
	s, now := m.lock(key)
	defer s.mu.Unlock()
	r := s.owned(key, c.Token, now)
	if r == nil || r.settled {
		return false, nil
	}
	s.end(r, r.prolong(now.Add(c.Lease), c.Linger))
	return true, nil
}

// Release is part of [lock.Store].
func (m *Store) Release(ctx context.Context, key string, c lock.Claim) (ok bool, err error) {
	return m.remove(ctx, key, c.Token, false)
}

// remove removes the entry of token. It removes a receipt only if receipts is set.
func (m *Store) remove(ctx context.Context, key, token string, receipts bool) (ok bool, err error) {
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

// Get is part of [lock.Store].
func (m *Store) Get(ctx context.Context, key string) (lock.Entry, error) {
	if err := checkKey(ctx, key); err != nil {
		return lock.Entry{}, err
	}
	r, now := m.get(key)
	return r.entry(now), nil
}

func (m *Store) get(key string) (record, clock.Moment) {
	s, now := m.lock(key)
	defer s.mu.Unlock()
	if r := s.live(key, now); r != nil {
		return *r, now
	}
	return record{}, now
}

// sweep removes all entries that have ended.
func (m *Store) sweep() {
	for i := range m.shards {
		m.shards[i].sweep()
	}
}
