package lock_test

import (
	"context"
	"flag"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"

	"github.com/httplatch/httplatch/internal/testkit/testmain"
	"github.com/httplatch/httplatch/lock"
	"github.com/httplatch/httplatch/lock/internal/testkit/fault"
	"github.com/httplatch/httplatch/lock/memstore"
)

var (
	firstSeed = flag.Uint64("seed", 0, "first seed of the tests at random")
	seeds     = flag.Uint64("seeds", 100, "number of seeds of the tests at random; make faults tries 300")
)

// Random work of several lockers over a network that loses, delays and refuses
// at random, with callers that leave and lockers that are closed in between. Sets are claimed
// at once, or, over every other server, in order.
func TestStress(t *testing.T) {
	testmain.SkipIn(t, testmain.Quick, "searches at random")
	t.Parallel()
	for seed := *firstSeed; seed < *firstSeed+*seeds; seed++ {
		require.Empty(t, stress(t, seed, func() lock.Store {
			if seed%2 == 1 {
				return struct{ lock.Store }{memstore.New()}
			}
			return memstore.New()
		}), "seed %d", seed)
	}
}

// The twins: stores that are wrong on purpose, and what is found.
func TestStressCatches(t *testing.T) {
	testmain.SkipIn(t, testmain.Quick, "searches at random")
	t.Parallel()
	for name, tt := range map[string]struct {
		open func() lock.Store
		want string
	}{
		"a release by any token": {func() lock.Store { return ownerless{memstore.New()} }, ""},
		"a ticket resumed twice": {func() lock.Store { return giver{memstore.New()} }, "resumed twice"},
		"a set claimed in part":  {func() lock.Store { return partial{memstore.New()} }, "two valid leases"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for seed := range uint64(200) {
				for _, found := range stress(t, seed, tt.open) {
					if strings.Contains(found, tt.want) {
						t.Logf("seed %d: %s", seed, found)
						return
					}
				}
			}
			t.Error("nothing was found in 200 seeds")
		})
	}
}

// partial claims all keys of a set but the last.
type partial struct{ *memstore.Store }

func (s partial) ClaimSet(ctx context.Context, keys []string, claims []lock.Claim) (lock.Entry, error) {
	last := max(len(keys)-1, 1)
	return s.Store.ClaimSet(ctx, keys[:last], claims[:last])
}

// giver replaces a holder with any token.
type giver struct{ lock.Store }

func (s giver) Claim(ctx context.Context, key string, c lock.Claim) (lock.Entry, error) {
	if c.ReplacesHeld {
		e, err := s.Get(ctx, key)
		if err != nil {
			return lock.Entry{}, err
		}
		if e.Token != c.Token {
			c.Replaces = e.Token
		}
	}
	return s.Store.Claim(ctx, key, c)
}

type ownerless struct{ lock.Store }

func (s ownerless) Release(ctx context.Context, key string, _ lock.Claim) (bool, error) {
	e, err := s.Get(ctx, key)
	if err != nil || e.State == lock.Free {
		return false, err
	}
	return s.Store.Release(ctx, key, lock.Claim{Token: e.Token})
}

// stress runs one seed and returns the violations.
func stress(t *testing.T, seed uint64, open func() lock.Store) (found []string) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		w := fault.NewWork(seed)
		w.Rerun = w.Plan.IntN(3) == 0
		server := open()
		network := fault.NewNetwork(server, seed)
		for range 2 + w.Plan.IntN(2) {
			w.Open(network)
		}
		w.Run(context.Background())
		network.Improve(0)
		found = w.Rest(t.Context(), network.Describe(), server)
	})
	return found
}
