package history_test

import (
	"context"
	"testing"
	"time"

	"github.com/httplatch/httplatch/lock"
	"github.com/httplatch/httplatch/lock/redisstore"
)

// stretched makes leases that are shorter or longer than what was asked for,
// and never says how much is left of one.
type stretched struct {
	*redisstore.Store
	by float64
}

func plantStretched(by float64) planting {
	return func(_ *testing.T, _ string, s *redisstore.Store) store { return stretched{s, by} }
}

func (s stretched) Claim(ctx context.Context, key string, c lock.Claim) (lock.Entry, error) {
	asked := c.Lease
	c.Lease = time.Duration(float64(asked) * s.by)
	e, err := s.Store.Claim(ctx, key, c)
	if e.Left = 0; e.State == lock.Held && e.Token == c.Token {
		e.Left = asked
	}
	return e, err
}

func (s stretched) Get(ctx context.Context, key string) (lock.Entry, error) {
	e, err := s.Store.Get(ctx, key)
	e.Left = 0
	return e, err
}

// coarse has fences that count the seconds.
type coarse struct{ *redisstore.Store }

func plantCoarse(_ *testing.T, _ string, s *redisstore.Store) store { return coarse{s} }

func (s coarse) Claim(ctx context.Context, key string, c lock.Claim) (lock.Entry, error) {
	e, err := s.Store.Claim(ctx, key, c)
	e.Fence /= 1_000_000
	return e, err
}

func (s coarse) Get(ctx context.Context, key string) (lock.Entry, error) {
	e, err := s.Store.Get(ctx, key)
	e.Fence /= 1_000_000
	return e, err
}
