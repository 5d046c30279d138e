package memstore_test

import (
	"context"
	"log/slog"
	"math"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	latchtest "github.com/httplatch/httplatch/httptest"
	"github.com/httplatch/httplatch/internal/keytext"
	"github.com/httplatch/httplatch/internal/testkit/must"
	"github.com/httplatch/httplatch/internal/testkit/virtual"
	"github.com/httplatch/httplatch/lock"
	"github.com/httplatch/httplatch/lock/memstore"
)

func memoryClaim(token string, lease time.Duration) lock.Claim {
	return lock.Claim{Token: token, Attempt: 1, Owner: "host:1", Lease: lease}
}

func claimed(t *testing.T, s lock.Store, key string, c lock.Claim) lock.Entry {
	t.Helper()
	e := must.Entry(t)(s.Claim(t.Context(), key, c))
	require.Equal(t, lock.Held, e.State)
	require.Equal(t, c.Token, e.Token)
	return e
}

func stateOf(t *testing.T, s lock.Store, key string) lock.State {
	t.Helper()
	e := must.Entry(t)(s.Get(t.Context(), key))
	return e.State
}

func settled(t *testing.T, s lock.Store, key, token string, receipt []byte, keep time.Duration) {
	t.Helper()
	must.Yes(t)(s.Settle(t.Context(), key, lock.Claim{Token: token}, receipt, keep))
}

func listed(t *testing.T, s lock.Store) int {
	t.Helper()
	i, ok := s.(lock.Inspector)
	require.True(t, ok)
	n := 0
	for _, err := range i.List(t.Context()) {
		require.NoError(t, err)
		n++
	}
	return n
}

func TestConformance(t *testing.T) {
	t.Parallel()
	latchtest.TestStore(t, 20*time.Millisecond, func(*testing.T) lock.Store { return memstore.New() })
}

func TestExpiresToTheNanosecond(t *testing.T) {
	t.Parallel()
	for _, d := range []time.Duration{1, 15, 16, 17, time.Millisecond, 30 * time.Second, 24 * time.Hour, 100 * 365 * 24 * time.Hour} {
		synctest.Test(t, func(t *testing.T) {
			s := memstore.New()
			claimed(t, s, "lease", memoryClaim("a", d))
			claimed(t, s, "linger", lock.Claim{Token: "a", Lease: d, Linger: 1})
			claimed(t, s, "receipt", memoryClaim("a", 1))
			settled(t, s, "receipt", "a", []byte("x"), d)
			time.Sleep(d - 1)
			for _, key := range []string{"lease", "linger", "receipt"} {
				e := must.Entry(t)(s.Get(t.Context(), key))
				require.NotEqual(t, lock.Free, e.State, key)
				require.Equal(t, time.Duration(1), e.Left, key)
			}
			time.Sleep(time.Nanosecond)
			require.Equal(t, lock.Free, stateOf(t, s, "lease"))
			require.Equal(t, lock.Abandoned, stateOf(t, s, "linger"))
			require.Equal(t, lock.Free, stateOf(t, s, "receipt"))
			time.Sleep(time.Nanosecond)
			require.Equal(t, lock.Free, stateOf(t, s, "linger"))
		})
	}
}

func TestTimesDoNotOverflow(t *testing.T) {
	t.Parallel()
	s := memstore.New()
	c := lock.Claim{Token: "a", Lease: math.MaxInt64, Linger: math.MaxInt64}
	claimed(t, s, "key", c)
	must.Yes(t)(s.Renew(t.Context(), "key", c))
	require.Equal(t, lock.Held, stateOf(t, s, "key"))
	settled(t, s, "key", "a", nil, math.MaxInt64)
	require.Equal(t, lock.Settled, stateOf(t, s, "key"))
}

func TestRefusesWhatNoLockerSends(t *testing.T) {
	t.Parallel()
	s := memstore.New()
	long := string(make([]byte, keytext.MaxBytes+1))
	for name, call := range map[string]func() error{
		"no key":           func() error { _, err := s.Claim(t.Context(), "", memoryClaim("a", 1)); return err },
		"long key":         func() error { _, err := s.Claim(t.Context(), long, memoryClaim("a", 1)); return err },
		"get no key":       func() error { _, err := s.Get(t.Context(), ""); return err },
		"no token":         func() error { _, err := s.Claim(t.Context(), "k", memoryClaim("", 1)); return err },
		"long token":       func() error { _, err := s.Claim(t.Context(), "k", memoryClaim(long[:256], 1)); return err },
		"release no token": func() error { _, err := s.Release(t.Context(), "k", lock.Claim{Token: ""}); return err },
		"no lease":         func() error { _, err := s.Claim(t.Context(), "k", memoryClaim("a", 0)); return err },
		"negative lease":   func() error { _, err := s.Renew(t.Context(), "k", memoryClaim("a", -1)); return err },
		"negative linger": func() error {
			_, err := s.Claim(t.Context(), "k", lock.Claim{Token: "a", Lease: 1, Linger: -1})
			return err
		},
		"no keep": func() error { _, err := s.Settle(t.Context(), "k", lock.Claim{Token: "a"}, nil, 0); return err },
	} {
		require.ErrorIs(t, call(), lock.ErrNotApplied, name)
	}
	require.Zero(t, listed(t, s))
}

func TestOptionsPanic(t *testing.T) {
	t.Parallel()
	require.PanicsWithValue(t, "memstore: WithLimits(0, 1): both limits must be at least 1", func() { memstore.WithLimits(0, 1) })
	require.PanicsWithValue(t, "memstore: WithLimits(1, 0): both limits must be at least 1", func() { memstore.WithLimits(1, 0) })
	require.PanicsWithValue(t, "memstore: nil Option", func() { memstore.New(nil) })
}

func TestFencesGrowAcrossStores(t *testing.T) {
	virtual.Run(t, func(t *testing.T) {
		c := memoryClaim("a", time.Hour)
		c.Fenced = true
		before := claimed(t, memstore.New(), "key", c).Fence
		time.Sleep(time.Second)
		require.Greater(t, claimed(t, memstore.New(), "key", c).Fence, before)
	})
}

func TestListStopsWhenItsContextEnds(t *testing.T) {
	t.Parallel()
	s := memstore.New()
	for i := range 1000 {
		claimed(t, s, strconv.Itoa(i), memoryClaim("a", time.Hour))
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	entries, last := 0, error(nil)
	for _, last = range s.List(ctx) {
		cancel()
		entries++
	}
	require.ErrorIs(t, last, context.Canceled)
	require.Less(t, entries, 1000)
}

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var quiet = slog.New(slog.DiscardHandler)
