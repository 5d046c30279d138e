package memstore_test

import (
	"bytes"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/httplatch/httplatch/internal/testkit/must"
	"github.com/httplatch/httplatch/internal/testkit/virtual"
	"github.com/httplatch/httplatch/lock"
	"github.com/httplatch/httplatch/lock/memstore"
)

func requireFull(t *testing.T, s lock.Store, key string) {
	t.Helper()
	e, err := s.Claim(t.Context(), key, memoryClaim("new", time.Minute))
	require.ErrorIs(t, err, lock.ErrFull)
	require.ErrorIs(t, err, lock.ErrUnavailable)
	require.ErrorIs(t, err, lock.ErrNotApplied)
	require.Zero(t, e)
	require.Equal(t, lock.Free, stateOf(t, s, key))
}

func TestIsBoundedInEntries(t *testing.T) {
	virtual.Run(t, func(t *testing.T) {
		s := memstore.New(memstore.WithLimits(3, 1<<20))
		claimed(t, s, "held", memoryClaim("a", time.Hour))
		claimed(t, s, "abandoned", lock.Claim{Token: "a", Lease: time.Second, Linger: time.Hour})
		claimed(t, s, "settled", memoryClaim("a", time.Second))
		settled(t, s, "settled", "a", []byte("done"), time.Hour)
		time.Sleep(time.Minute)

		requireFull(t, s, "new")
		require.Equal(t, lock.Held, stateOf(t, s, "held"))
		require.Equal(t, lock.Abandoned, stateOf(t, s, "abandoned"))
		require.Equal(t, lock.Settled, stateOf(t, s, "settled"))

		// A full store serves its entries.
		claimed(t, s, "held", memoryClaim("a", time.Hour))
		takeover := memoryClaim("b", time.Hour)
		takeover.Replaces, takeover.Owner = "a", ""
		claimed(t, s, "abandoned", takeover)
		must.Yes(t)(s.Release(t.Context(), "held", lock.Claim{Token: "a"}))
		claimed(t, s, "new", memoryClaim("a", time.Hour))
		requireFull(t, s, "newer")
	})
}

func TestIsBoundedInBytes(t *testing.T) {
	t.Parallel()
	s := memstore.New(memstore.WithLimits(1000, 2000))
	big := memoryClaim("a", time.Hour)
	big.Owner = string(make([]byte, 1500))
	claimed(t, s, "big", big)
	claimed(t, s, "small", memoryClaim("a", time.Hour))
	requireFull(t, s, "more")
	must.Yes(t)(s.Release(t.Context(), "big", lock.Claim{Token: "a"}))
	for i := range 3 {
		claimed(t, s, strconv.Itoa(i), memoryClaim("a", time.Hour))
	}
}

// A store becomes full in the middle of a set. None of the keys is taken, and their room is free.
func TestFullStoreTakesNoPartOfASet(t *testing.T) {
	t.Parallel()
	s := memstore.New(memstore.WithLimits(4, 1<<20))
	claimed(t, s, "held", memoryClaim("a", time.Hour))
	keys := []string{"1", "2", "3", "4"}
	claims := make([]lock.Claim, len(keys))
	for i := range claims {
		claims[i] = memoryClaim("set"+keys[i], time.Hour)
	}
	for range 10 {
		_, err := s.ClaimSet(t.Context(), keys, claims)
		require.ErrorIs(t, err, lock.ErrFull)
		require.ErrorIs(t, err, lock.ErrNotApplied)
		for _, key := range keys {
			require.Equal(t, lock.Free, stateOf(t, s, key))
		}
	}
	inTheWay := must.Get(s.ClaimSet(t.Context(), keys[:3], claims[:3]))(t)
	require.Zero(t, inTheWay)
	requireFull(t, s, "more")
}

func TestReservesRoomForReceipts(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]lock.Claim{
		"fingerprint": {Token: "a", Lease: time.Minute, Owner: "host:1", Fingerprint: []byte("fingerprint")},
		"linger":      {Token: "a", Lease: time.Minute, Owner: "host:1, longer", Linger: time.Hour},
	} {
		t.Run(name, func(t *testing.T) {
			s := memstore.New(memstore.WithLimits(1000, 10_000))
			const n = 8
			for i := range n {
				claimed(t, s, strconv.Itoa(i), c)
			}
			full := func() {
				_, err := s.Claim(t.Context(), "more", c)
				require.ErrorIs(t, err, lock.ErrFull)
			}
			full()
			for i := range n {
				settled(t, s, strconv.Itoa(i), "a", make([]byte, 1<<10), time.Hour)
			}
			full()
		})
	}
}

// A receipt that does not fit must not end as a key that runs again.
func TestKeepsTheClaimOfAReceiptThatDoesNotFit(t *testing.T) {
	virtual.Run(t, func(t *testing.T) {
		s := memstore.New(memstore.WithLimits(1000, 10_000))
		c := memoryClaim("a", 30*time.Second)
		c.Fingerprint = []byte("fingerprint")
		claimed(t, s, "key", c)
		other := memoryClaim("b", time.Hour)
		other.Owner = string(make([]byte, 6000))
		claimed(t, s, "other", other)

		receipt := bytes.Repeat([]byte("x"), 5000)
		ok, err := s.Settle(t.Context(), "key", lock.Claim{Token: "a"}, receipt, 24*time.Hour)
		require.False(t, ok)
		require.ErrorIs(t, err, lock.ErrFull)
		require.NotErrorIs(t, err, lock.ErrNotApplied, "it had an effect")

		time.Sleep(24*time.Hour - 1)
		e := must.Entry(t)(s.Claim(t.Context(), "key", memoryClaim("c", time.Minute)))
		require.Equal(t, lock.Held, e.State)
		require.Equal(t, "a", e.Token)
		require.Equal(t, time.Duration(1), e.Left)

		// The other has gone, so now it fits.
		settled(t, s, "key", "a", receipt, time.Hour)
		e = must.Entry(t)(s.Get(t.Context(), "key"))
		require.Equal(t, receipt, e.Receipt)
		require.Equal(t, time.Hour, e.Left)
	})
}

// The next size of the allocator is 112.
func TestRecordHasTheSizeThatItIsLaidOutFor(t *testing.T) {
	t.Parallel()
	require.EqualValues(t, 96, memstore.RecordBytes)
}

// A record moves to a place that the search for records that are over has passed, or its end moves closer there. It
// is still found when it is over.
func TestFindsWhatEndsBehindTheSearch(t *testing.T) {
	t.Parallel()
	const n, short = 40, 10 * time.Second
	for name, tt := range map[string]struct {
		third   time.Duration // the lease of the third from the end
		change  func(s *memstore.Store, key string) (bool, error)
		entries int
	}{
		"moved there": {short, func(s *memstore.Store, key string) (bool, error) {
			return s.Release(t.Context(), key, lock.Claim{Token: "a"})
		}, n - 3},
		"ends sooner": {time.Hour, func(s *memstore.Store, key string) (bool, error) {
			return s.Settle(t.Context(), key, lock.Claim{Token: "a"}, nil, short)
		}, n - 2},
	} {
		t.Run(name, virtual.Test(func(t *testing.T) {
			s := memstore.New(memstore.WithLimits(n, 1<<20))
			keys := memstore.KeysOfOneShard(s, 2*n)
			for i, key := range keys[:n] {
				lease := time.Hour
				switch i {
				case 0, 1: // begin a round, of which the second knows all ends
					lease = time.Duration(i+1) * time.Second
				case n - 3:
					lease = tt.third
				}
				claimed(t, s, key, memoryClaim("a", lease))
			}
			visit := func() { require.Equal(t, lock.Held, stateOf(t, s, keys[2])) }
			time.Sleep(time.Second)
			for range 10 {
				visit()
			}
			time.Sleep(time.Second)
			visit() // passes keys[5]
			must.Yes(t)(tt.change(s, keys[5]))
			for range 3 {
				visit() // ends the round
			}
			require.Equal(t, tt.entries, s.Describe().Entries)
			time.Sleep(short)
			for i := range n - tt.entries + 1 {
				claimed(t, s, keys[n+i], memoryClaim("a", time.Hour))
			}
			requireFull(t, s, keys[2*n-1])
		}))
	}
}
