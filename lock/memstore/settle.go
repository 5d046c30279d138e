package memstore

import (
	"context"
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/httplatch/httplatch/lock"
	"github.com/httplatch/httplatch/lock/internal/clock"
)

// Settle is part of [lock.Store].
func (m *Store) Settle(ctx context.Context, key string, c lock.Claim, receipt []byte, keep time.Duration) (ok bool, err error) {
	if err := checkCall(ctx, key, c.Token); err != nil {
		return false, err
	}
	if keep <= 0 {
		return false, fmt.Errorf("%w: receipt to be kept for %v", lock.ErrNotApplied, keep)
	}
	ok, err = m.settle(key, c.Token, receipt, keep)
	if errors.Is(err, lock.ErrFull) {
		m.sweep()
		ok, err = m.settle(key, c.Token, receipt, keep)
	}
	return ok, err
}

// settle takes the room for a long receipt before it copies it, so that a receipt which does
// not fit is not copied.
func (m *Store) settle(key, token string, receipt []byte, keep time.Duration) (ok bool, err error) {
	if len(receipt) > receiptReserve {
		if err := m.reserve(key, token, len(receipt), keep); err != nil {
			return false, err
		}
	}
	return m.leave(key, token, string(receipt), keep)
}

// reserve takes room for a receipt of this size under key, if token may settle the entry.
func (m *Store) reserve(key, token string, size int, keep time.Duration) error {
	s, now := m.lock(key)
	defer s.mu.Unlock()
	r := s.owned(key, token, now)
	if r == nil || r.settled {
		return nil
	}
	room := uint32(min(receiptCost(size), math.MaxUint32)) //nolint:gosec // it is positive
	if err := m.room.take(r.scope, 0, int64(room)-int64(r.reserve)); err != nil {
		return s.refuse(r, now, keep, err)
	}
	r.reserve = room
	return nil
}

// leave leaves receipt under key.
func (m *Store) leave(key, token, receipt string, keep time.Duration) (ok bool, err error) {
	s, now := m.lock(key)
	defer s.mu.Unlock()
	r := s.owned(key, token, now)
	switch {
	case r == nil:
		return false, nil
	case r.settled:
		return true, nil
	}
	if err := m.room.take(r.scope, 0, r.settledCost(receipt)-r.cost()); err != nil {
		return false, s.refuse(r, now, keep, err)
	}
	r.settle(receipt)
	s.records[r.key()] = r // also replaces the key, which may be part of a new string
	s.end(r, now.Add(keep))
	return true, nil
}

// refuse keeps r unsettled for as long as the receipt, which does not fit, was to be kept. The work
// was done, so the key must not become free earlier. If the receipt is sent again, the key must not
// become free later either.
func (s *shard) refuse(r *record, now clock.Moment, keep time.Duration, full error) error {
	if !r.refused {
		r.refused, r.lease = true, now.Add(keep)
		s.end(r, r.lease)
	}
	return fmt.Errorf("%w: the receipt was not kept, its claim is for as long", full)
}
