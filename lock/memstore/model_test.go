package memstore_test

import (
	"math"
	"math/rand/v2"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/httplatch/httplatch/internal/testkit/must"
	"github.com/httplatch/httplatch/internal/testkit/virtual"
	"github.com/httplatch/httplatch/lock"
	"github.com/httplatch/httplatch/lock/memstore"
)

// A store that is full exactly when the plainest model is finds everything that is over, and nothing else. With all
// keys in one shard, the search is in the middle of them at most times.
func TestAgainstAModel(t *testing.T) {
	t.Parallel()
	for seed := range uint64(20) {
		for name, keysOf := range map[string]func(*memstore.Store, int) []string{"all shards": keysOfAllShards, "one shard": memstore.KeysOfOneShard} {
			if name == "one shard" && seed >= 5 {
				continue
			}
			t.Run(strconv.FormatUint(seed, 10)+" over "+name, virtual.Test(func(t *testing.T) { compareWithModel(t, rand.New(rand.NewPCG(seed, 0)), keysOf) }))
		}
	}
}

func keysOfAllShards(_ *memstore.Store, n int) (keys []string) {
	for i := range n {
		keys = append(keys, strconv.Itoa(i))
	}
	return keys
}

type modelEntry struct {
	token       string
	settled     bool
	lease, over time.Time
}

func compareWithModel(t *testing.T, r *rand.Rand, keysOf func(*memstore.Store, int) []string) {
	t.Helper()
	const limit = 40
	s := memstore.New(memstore.WithLimits(limit, 1<<30))
	keys, model := keysOf(s, 2*limit), make(map[string]*modelEntry)
	span := func() time.Duration { return 1 + time.Duration(math.Exp2(r.Float64()*48)) }
	full := 0
	for range 10_000 {
		now := time.Now()
		for key, e := range model {
			if !now.Before(e.over) {
				delete(model, key)
			}
		}
		key, token := keys[r.IntN(len(keys))], strconv.Itoa(r.IntN(2))
		c := lock.Claim{Token: token, Lease: span()}
		if r.IntN(2) == 0 {
			c.Linger = span()
		}
		e := model[key]
		ours := e != nil && e.token == token
		switch r.IntN(8) {
		default:
			got, err := s.Claim(t.Context(), key, c)
			if e == nil && len(model) == limit {
				require.ErrorIs(t, err, lock.ErrFull)
				full++
				continue
			}
			require.NoError(t, err)
			if e == nil {
				e = &modelEntry{token: token, lease: now.Add(c.Lease), over: now.Add(c.Lease + c.Linger)}
				model[key] = e
			}
			require.Equal(t, e.token, got.Token)
			requireModel(t, e, got, now)
		case 0:
			ok := must.Get(s.Release(t.Context(), key, lock.Claim{Token: token}))(t)
			require.Equal(t, ours && !e.settled, ok)
			if ok {
				delete(model, key)
			}
		case 1:
			ok := must.Get(s.Renew(t.Context(), key, c))(t)
			require.Equal(t, ours && !e.settled, ok)
			if ok {
				linger := max(e.over.Sub(e.lease), c.Linger)
				if until := now.Add(c.Lease); until.After(e.lease) {
					e.lease = until
				}
				e.over = e.lease.Add(linger)
			}
		case 2:
			ok := must.Get(s.Settle(t.Context(), key, lock.Claim{Token: token}, nil, c.Lease))(t)
			require.Equal(t, ours, ok)
			if ok && !e.settled {
				e.settled, e.over = true, now.Add(c.Lease)
			}
		case 3:
			if r.IntN(8) == 0 {
				time.Sleep(span())
			}
		}
	}
	require.Greater(t, full, 100)
	for key, e := range model {
		if !time.Now().Before(e.over) {
			delete(model, key)
		}
	}
	require.Equal(t, len(model), listed(t, s))
}

func requireModel(t *testing.T, want *modelEntry, got lock.Entry, now time.Time) {
	t.Helper()
	state, left := lock.Abandoned, want.over.Sub(now)
	switch {
	case want.settled:
		state = lock.Settled
	case now.Before(want.lease):
		state, left = lock.Held, want.lease.Sub(now)
	}
	require.Equal(t, state, got.State)
	require.Equal(t, left, got.Left)
}
