package memstore

import (
	"context"
	"errors"
	"fmt"
	"hash/maphash"

	"github.com/httplatch/httplatch/lock"
	"github.com/httplatch/httplatch/lock/internal/clock"
)

// ClaimSet is part of [lock.SetClaimer].
func (m *Store) ClaimSet(ctx context.Context, keys []string, claims []lock.Claim) (inTheWay lock.Entry, err error) {
	for i, key := range keys {
		if err := checkClaim(ctx, key, &claims[i]); err != nil {
			return lock.Entry{}, err
		}
	}
	r, now, err := m.claimSet(keys, claims)
	if errors.Is(err, lock.ErrFull) {
		m.sweep()
		r, now, err = m.claimSet(keys, claims)
	}
	if err != nil {
		return lock.Entry{}, fmt.Errorf("%w: %w", lock.ErrNotApplied, err)
	}
	return r.entry(now), nil
}

// claimSet returns the first record in the way, the zero record if all keys were taken.
func (m *Store) claimSet(keys []string, claims []lock.Claim) (inTheWay record, now clock.Moment, err error) {
	locked, now := m.lockAll(keys)
	defer m.unlockAll(&locked)
	for i, key := range keys {
		if r := m.shardOf(key).live(key, now); r != nil && (r.settled || r.token() != claims[i].Token) {
			return *r, now, nil
		}
	}
	var taken []*record
	for i, key := range keys {
		s, c := m.shardOf(key), &claims[i]
		if s.live(key, now) != nil {
			continue // an earlier send has taken it
		}
		scope := m.scope(c.Scope)
		if err := m.room.take(scope, 1, claimCost(key, c)); err != nil {
			for _, r := range taken {
				m.shardOf(r.key()).drop(r)
			}
			return record{}, now, err
		}
		taken = append(taken, s.put(key, c, scope, now, nil))
	}
	return record{}, now, nil
}

func (m *Store) shardOf(key string) *shard { return &m.shards[maphash.String(m.seed, key)%shardCount] }

// lockAll locks the shards of keys in their order, so that two callers never wait for each other,
// and then reads the clock.
func (m *Store) lockAll(keys []string) (locked [shardCount]bool, now clock.Moment) {
	for _, key := range keys {
		locked[maphash.String(m.seed, key)%shardCount] = true
	}
	for i, is := range locked {
		if is {
			m.shards[i].mu.Lock()
		}
	}
	now = clock.Now()
	for i, is := range locked {
		if is {
			m.shards[i].expire(now, visitsPerCall)
		}
	}
	return locked, now
}

func (m *Store) unlockAll(locked *[shardCount]bool) {
	for i, is := range locked {
		if is {
			m.shards[i].mu.Unlock()
		}
	}
}
