package memstore

import (
	"context"
	"errors"
	"fmt"

	"github.com/httplatch/httplatch/lock"
)

// Amend is part of [lock.Amender].
func (m *Store) Amend(ctx context.Context, key, token string, from, to []byte) (ok bool, err error) {
	if err := checkCall(ctx, key, token); err != nil {
		return false, err
	}
	before, after := string(from), string(to)
	ok, err = m.amend(key, token, before, after)
	if errors.Is(err, lock.ErrFull) {
		m.sweep()
		ok, err = m.amend(key, token, before, after)
	}
	if err != nil {
		return false, fmt.Errorf("%w: %w", lock.ErrNotApplied, err)
	}
	return ok, nil
}

func (m *Store) amend(key, token, from, to string) (ok bool, err error) {
	s, now := m.lock(key)
	defer s.mu.Unlock()
	r := s.owned(key, token, now)
	switch {
	case r == nil || !r.settled:
		return false, nil
	case r.receipt == to:
		return true, nil
	case r.receipt != from:
		return false, nil
	}
	if err := m.room.take(r.scope, 0, r.settledCost(to)-r.cost()); err != nil {
		return false, err
	}
	r.receipt = to
	return true, nil
}
