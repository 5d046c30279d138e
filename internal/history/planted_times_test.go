package history_test

import (
	"context"
	"testing"
	"time"

	"github.com/httplatch/httplatch/lock"
)

// stretched makes leases that are shorter or longer than what was asked for,
// and never says how much is left of one.
type stretched struct {
	store
	by float64
}

func plantStretched(by float64) planting {
	return func(_ *testing.T, _ string, s store) store { return stretched{s, by} }
}

func (s stretched) Claim(ctx context.Context, key string, c lock.Claim) (lock.Entry, error) {
	asked := c.Lease
	c.Lease = time.Duration(float64(asked) * s.by)
	e, err := s.store.Claim(ctx, key, c)
	if e.Left = 0; e.State == lock.Held && e.Token == c.Token {
		e.Left = asked
	}
	return e, err
}

func (s stretched) Get(ctx context.Context, key string) (lock.Entry, error) {
	e, err := s.store.Get(ctx, key)
	e.Left = 0
	return e, err
}

// coarse has fences that only every so many claims change, or microseconds.
type coarse struct {
	store
	by int64
}

func plantCoarse(by int64) planting {
	return func(_ *testing.T, _ string, s store) store { return coarse{s, by} }
}

func (s coarse) Claim(ctx context.Context, key string, c lock.Claim) (lock.Entry, error) {
	e, err := s.store.Claim(ctx, key, c)
	e.Fence /= s.by
	return e, err
}

func (s coarse) Get(ctx context.Context, key string) (lock.Entry, error) {
	e, err := s.store.Get(ctx, key)
	e.Fence /= s.by
	return e, err
}
