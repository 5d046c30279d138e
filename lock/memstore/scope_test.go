package memstore_test

import (
	"fmt"
	"math"
	"math/rand/v2"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/httplatch/httplatch/internal/testkit/must"
	"github.com/httplatch/httplatch/internal/testkit/virtual"
	"github.com/httplatch/httplatch/lock"
	"github.com/httplatch/httplatch/lock/memstore"
)

func scopedClaim(scope string) lock.Claim {
	return lock.Claim{Token: "a", Attempt: 1, Fingerprint: []byte("request 1"), Scope: scope, Lease: time.Hour, Linger: time.Hour}
}

// fillAs claims as scope until the store refuses a claim, and returns the number
// of grants.
func fillAs(t *testing.T, s lock.Store, scope string, most int, settle func(key string)) (granted int, err error) {
	t.Helper()
	for ; granted < most; granted++ {
		key := scope + "=" + strconv.Itoa(granted)
		if _, err = s.Claim(t.Context(), key, scopedClaim(scope)); err != nil {
			return granted, err
		}
		settle(key)
	}
	return granted, nil
}

func TestOneScopeDoesNotFillTheStore(t *testing.T) {
	t.Parallel()
	const entries, bytes = 1000, 8 << 20
	for name, receipt := range map[string]int{
		"entries": 100,
		"bytes":   20_000, // receipts that do not fit leave tombstones
	} {
		for _, share := range []float64{0.25, 1} {
			t.Run(fmt.Sprint(name, " ", share), func(t *testing.T) {
				s := memstore.New(memstore.WithLimits(entries, bytes), memstore.WithScopeShare(share))
				full := 0
				settle := func(key string) {
					_, err := s.Settle(t.Context(), key, lock.Claim{Token: "a"}, make([]byte, receipt), time.Hour)
					if err != nil {
						require.ErrorIs(t, err, lock.ErrFull)
						full++
						settled(t, s, key, "a", nil, time.Hour)
					}
				}
				granted, err := fillAs(t, s, "greedy", 2*entries, settle)
				require.ErrorIs(t, err, lock.ErrFull)
				require.ErrorIs(t, err, lock.ErrNotApplied)
				t.Logf("granted %d, of which %d left a tombstone: %v", granted, full, err)
				others, err := fillAs(t, s, "modest", 10, settle)
				if share == 1 {
					// The must-fail twin: without a share, one scope fills the store.
					require.Error(t, err)
					require.Zero(t, others)
					return
				}
				require.NoError(t, err)
				require.Equal(t, 10, others)
				require.LessOrEqual(t, granted, entries/4)
				require.Equal(t, name == "bytes", full > 0)
				require.Contains(t, mustRefuse(t, s, "greedy").Error(), "WithScopeShare")

				// Locks have no scope, and are not refused for one.
				claimed(t, s, "lock", memoryClaim("a", time.Hour))

				e := must.Entry(t)(s.Claim(t.Context(), "greedy=0", scopedClaim("greedy")))
				require.Equal(t, lock.Settled, e.State)
			})
		}
	}
}

func mustRefuse(t *testing.T, s lock.Store, scope string) error {
	t.Helper()
	_, err := s.Claim(t.Context(), "one more of "+scope, scopedClaim(scope))
	require.ErrorIs(t, err, lock.ErrFull)
	return err
}

// A scope keeps its entries, even if its share is full.
func TestScopeAboveItsShareKeepsWhatItHas(t *testing.T) {
	virtual.Run(t, func(t *testing.T) {
		s := memstore.New(memstore.WithLimits(8, 1<<20))
		c := scopedClaim("greedy")
		c.Lease = time.Minute
		claimed(t, s, "1", c)
		claimed(t, s, "2", c)
		mustRefuse(t, s, "greedy")

		must.Yes(t)(s.Renew(t.Context(), "1", c))
		claimed(t, s, "1", c)
		settled(t, s, "1", "a", make([]byte, 1<<10), time.Hour)
		time.Sleep(2 * time.Minute)
		takeover := c
		takeover.Token, takeover.Replaces, takeover.Owner = "b", "a", "a longer owner than before"
		claimed(t, s, "2", takeover)
		mustRefuse(t, s, "greedy")

		must.Yes(t)(s.Release(t.Context(), "2", lock.Claim{Token: "b"}))
		claimed(t, s, "3", c)
		time.Sleep(24 * time.Hour)
		claimed(t, s, "4", c)
		claimed(t, s, "5", c)
		mustRefuse(t, s, "greedy")
	})
}

// A share that is smaller than one request would let no request run.
func TestSingleEntryIsNeverRefusedForItsShare(t *testing.T) {
	t.Parallel()
	s := memstore.New(memstore.WithLimits(3, 4000))
	claimed(t, s, "1", scopedClaim("a"))
	settled(t, s, "1", "a", make([]byte, 2000), time.Hour)
	mustRefuse(t, s, "a")
	claimed(t, s, "2", scopedClaim("b"))
}

// A count that does not return to zero would refuse a scope for ever.
func TestScopeCountsReturnToZero(t *testing.T) {
	virtual.Run(t, func(t *testing.T) {
		r := rand.New(rand.NewPCG(1, 0))
		s := memstore.New(memstore.WithLimits(200, 400_000), memstore.WithScopeShare(0.5))
		for range 20_000 {
			key, token := strconv.Itoa(r.IntN(300)), strconv.Itoa(r.IntN(2))
			c := scopedClaim(strconv.Itoa(r.IntN(10)))
			c.Token, c.Lease = token, time.Duration(1+r.IntN(10))*time.Second
			c.Linger = time.Duration(r.IntN(2)) * time.Minute
			switch r.IntN(8) {
			case 0:
				_, _ = s.Release(t.Context(), key, lock.Claim{Token: token})
			case 1, 2:
				_, _ = s.Settle(t.Context(), key, lock.Claim{Token: token}, make([]byte, r.IntN(20_000)), c.Lease)
			case 3:
				_, _ = s.Renew(t.Context(), key, c)
			case 4:
				c.Replaces, c.ReplacesHeld = strconv.Itoa(r.IntN(2)), r.IntN(2) == 0
				fallthrough
			default:
				_, _ = s.Claim(t.Context(), key, c)
			}
			if r.IntN(100) == 0 {
				time.Sleep(time.Duration(r.IntN(5)) * time.Second)
			}
		}
		entries, bytes := memstore.ScopeCounts(s)
		require.Positive(t, entries)
		require.Positive(t, bytes)
		time.Sleep(time.Hour)
		memstore.Sweep(s)
		entries, bytes = memstore.ScopeCounts(s)
		require.Zero(t, entries)
		require.Zero(t, bytes)
	})
}

// Four scopes that have used up their share fill the store. No other scope may be
// mistaken for one of them, except one in a million.
func TestScopesAreDistinguished(t *testing.T) {
	t.Parallel()
	s := memstore.New(memstore.WithLimits(4000, 1<<30), memstore.WithScopeShare(0.2))
	for _, greedy := range []string{"a", "b", "c", "d"} {
		n, err := fillAs(t, s, greedy, 4000, func(string) {})
		require.ErrorIs(t, err, lock.ErrFull)
		require.Equal(t, 800, n)
	}
	refused := 0
	for i := range 200_000 {
		key := "other=" + strconv.Itoa(i)
		c := scopedClaim(key)
		if _, err := s.Claim(t.Context(), key, c); err != nil {
			refused++
			continue
		}
		_, _ = s.Release(t.Context(), key, c)
	}
	require.LessOrEqual(t, refused, 10)
}

func TestScopeShareIsAShare(t *testing.T) {
	t.Parallel()
	for _, share := range []float64{0, -1, 1.01, math.NaN(), math.Inf(1)} {
		require.PanicsWithValue(t, fmt.Sprintf("memstore: WithScopeShare(%v): the share must be above 0 and at most 1", share),
			func() { memstore.WithScopeShare(share) })
	}
	for _, share := range []float64{1e-9, 0.001, 0.3, 0.999} {
		s := memstore.New(memstore.WithScopeShare(share))
		claimed(t, s, "1", scopedClaim("a"))
	}
}

// Receipts that come at once do not exceed the share of their scope together: for as long as they
// were kept, each new request of this user would be refused.
func TestReceiptsAtOnceLeaveRoomForClaims(t *testing.T) {
	t.Parallel()
	const callers, size = 8, 200 << 10
	claim := lock.Claim{Token: "a", Scope: "user=42", Lease: time.Minute}
	receipt := make([]byte, size)
	for round := range 600 {
		s := memstore.New(memstore.WithLimits(1000, 16*size), memstore.WithScopeShare(0.25)) // three of them fit
		for i := range callers {
			put(t, s, strconv.Itoa(i), claim)
		}
		var begin, done sync.WaitGroup
		begin.Add(1)
		for i := range callers {
			done.Go(func() {
				begin.Wait()
				_, _ = s.Settle(t.Context(), strconv.Itoa(i), claim, receipt, time.Hour)
			})
		}
		begin.Done()
		done.Wait()
		e, err := s.Claim(t.Context(), "another", claim)
		require.NoError(t, err, "round %d", round)
		require.Equal(t, lock.Held, e.State)
	}
}
