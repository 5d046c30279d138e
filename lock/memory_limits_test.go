package lock_test

import (
	"bytes"
	"fmt"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/httplatch/httplatch/lock"
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

func TestMemoryIsBoundedInEntries(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := lock.NewMemory(lock.WithLimits(3, 1<<20))
		claimed(t, s, "held", memoryClaim("a", time.Hour))
		claimed(t, s, "abandoned", lock.Claim{Token: "a", Lease: time.Second, Linger: time.Hour})
		claimed(t, s, "settled", memoryClaim("a", time.Second))
		settled(t, s, "settled", "a", []byte("done"), time.Hour)
		time.Sleep(time.Minute)

		for i := range 1000 {
			requireFull(t, s, strconv.Itoa(i))
		}
		require.Equal(t, lock.Held, stateOf(t, s, "held"))
		require.Equal(t, lock.Abandoned, stateOf(t, s, "abandoned"))
		require.Equal(t, lock.Settled, stateOf(t, s, "settled"))

		// A full store serves what it has.
		claimed(t, s, "held", memoryClaim("a", time.Hour))
		takeover := memoryClaim("b", time.Hour)
		takeover.Replaces, takeover.Owner = "a", ""
		claimed(t, s, "abandoned", takeover)
		ok, err := s.Release(t.Context(), "held", "a")
		require.NoError(t, err)
		require.True(t, ok)
		claimed(t, s, "new", memoryClaim("a", time.Hour))
		requireFull(t, s, "newer")
	})
}

func TestMemoryIsBoundedInBytes(t *testing.T) {
	t.Parallel()
	s := lock.NewMemory(lock.WithLimits(1000, 2000))
	big := memoryClaim("a", time.Hour)
	big.Owner = string(make([]byte, 1500))
	claimed(t, s, "big", big)
	claimed(t, s, "small", memoryClaim("a", time.Hour))
	requireFull(t, s, "more")
	ok, err := s.Release(t.Context(), "big", "a")
	require.NoError(t, err)
	require.True(t, ok)
	for i := range 3 {
		claimed(t, s, strconv.Itoa(i), memoryClaim("a", time.Hour))
	}
}

// What is over makes room at once, wherever in the store it is, and whether it
// ended long ago or just now.
func TestMemoryMakesRoomOfWhatIsOver(t *testing.T) {
	t.Parallel()
	for _, lease := range []time.Duration{1, 16, time.Millisecond, 30 * time.Second, 24 * time.Hour} {
		synctest.Test(t, func(t *testing.T) {
			const n = 500
			s := lock.NewMemory(lock.WithLimits(n, 1<<20))
			for round := range 3 {
				for i := range n {
					claimed(t, s, fmt.Sprint(round, i), memoryClaim("a", lease*time.Duration(i+1)))
				}
				requireFull(t, s, "more")
				time.Sleep(n * lease)
			}
			require.Zero(t, listed(t, s))
		})
	}
}

func TestMemoryReservesRoomForReceipts(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]lock.Claim{
		"fingerprint": {Token: "a", Lease: time.Minute, Owner: "host:1", Fingerprint: []byte("fingerprint")},
		"linger":      {Token: "a", Lease: time.Minute, Owner: "host:1, longer", Linger: time.Hour},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := lock.NewMemory(lock.WithLimits(1000, 10_000))
			n := 0
			for ; ; n++ {
				if _, err := s.Claim(t.Context(), strconv.Itoa(n), c); err != nil {
					require.ErrorIs(t, err, lock.ErrFull)
					break
				}
			}
			require.Equal(t, 8, n)
			for i := range n {
				settled(t, s, strconv.Itoa(i), "a", make([]byte, 1<<10), time.Hour)
			}
			_, err := s.Claim(t.Context(), "more", c)
			require.ErrorIs(t, err, lock.ErrFull)
		})
	}
}

// A receipt that does not fit must not end as a key that runs again.
func TestMemoryKeepsTheClaimOfAReceiptThatDoesNotFit(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := lock.NewMemory(lock.WithLimits(1000, 10_000))
		c := memoryClaim("a", 30*time.Second)
		c.Fingerprint = []byte("fingerprint")
		claimed(t, s, "key", c)
		other := memoryClaim("b", time.Hour)
		other.Owner = string(make([]byte, 6000))
		claimed(t, s, "other", other)

		receipt := bytes.Repeat([]byte("x"), 5000)
		ok, err := s.Settle(t.Context(), "key", "a", receipt, 24*time.Hour)
		require.False(t, ok)
		require.ErrorIs(t, err, lock.ErrFull)
		require.NotErrorIs(t, err, lock.ErrNotApplied, "it had an effect")

		time.Sleep(24*time.Hour - 1)
		e, err := s.Claim(t.Context(), "key", memoryClaim("c", time.Minute))
		require.NoError(t, err)
		require.Equal(t, lock.Held, e.State)
		require.Equal(t, "a", e.Token)
		require.Equal(t, time.Duration(1), e.Left)

		// The other has gone, so now it fits.
		settled(t, s, "key", "a", receipt, time.Hour)
		e, err = s.Get(t.Context(), "key")
		require.NoError(t, err)
		require.Equal(t, receipt, e.Receipt)
		require.Equal(t, time.Hour, e.Left)
	})
}

// The next size of the allocator is 112.
func TestRecordHasTheSizeThatItIsLaidOutFor(t *testing.T) {
	t.Parallel()
	require.EqualValues(t, 96, lock.RecordBytes)
}
