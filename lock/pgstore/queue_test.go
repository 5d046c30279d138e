package pgstore_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/httplatch/httplatch/internal/testkit/must"
	"github.com/httplatch/httplatch/internal/testkit/pgtest"
	"github.com/httplatch/httplatch/internal/testkit/sqlproxy"
	"github.com/httplatch/httplatch/lock"
	"github.com/httplatch/httplatch/lock/pgstore"
)

// Calls that end or renew a lease are served before waiting claims. The twin is a read, which waits
// for its turn.
func TestClaimsWaitForWhatHasBegun(t *testing.T) {
	t.Parallel()
	const claims = 400
	for name, tt := range map[string]struct {
		call  func(ctx context.Context, s *pgstore.Store) (ok bool, err error)
		waits bool
	}{
		"Renew": {func(ctx context.Context, s *pgstore.Store) (bool, error) {
			return s.Renew(ctx, "mine", lock.Claim{Token: "t", Lease: time.Minute})
		}, false},
		"Settle": {func(ctx context.Context, s *pgstore.Store) (bool, error) {
			return s.Settle(ctx, "mine", lock.Claim{Token: "t"}, []byte("receipt"), time.Minute)
		}, false},
		"Release": {func(ctx context.Context, s *pgstore.Store) (bool, error) {
			return s.Release(ctx, "mine", lock.Claim{Token: "t"})
		}, false},
		"Get": {func(ctx context.Context, s *pgstore.Store) (bool, error) {
			e, err := s.Get(ctx, "mine")
			return e.Token == "t", err
		}, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := slowShop(t).store
			claim := lock.Claim{Token: "t", Attempt: 1, Lease: time.Minute}
			must.Entry(t)(s.Claim(t.Context(), "mine", claim))
			var begun, served atomic.Int64
			var all sync.WaitGroup
			for i := range claims {
				all.Go(func() {
					begun.Add(1)
					_, err := s.Claim(context.WithoutCancel(t.Context()), fmt.Sprint(i), claim)
					served.Add(1)
					if err != nil {
						t.Error(err)
					}
				})
			}
			require.Eventually(t, func() bool { return begun.Load() == claims && served.Load() > 8 }, 20*time.Second, time.Millisecond)
			before := served.Load()
			ok, err := tt.call(t.Context(), s)
			meanwhile := served.Load() - before
			require.NoError(t, err)
			require.True(t, ok)
			all.Wait()
			t.Logf("%d claims were served before it", meanwhile)
			if tt.waits {
				require.Greater(t, meanwhile, int64(claims/2))
			} else {
				require.Less(t, meanwhile, int64(claims/4))
			}
		})
	}
}

var errHook = errors.New("the hook has panicked")

// tracer is one of a pool, and panics while it is on. The pool has taken no connection then.
type tracer struct {
	on *atomic.Bool
}

func (t tracer) TraceAcquireStart(ctx context.Context, _ *pgxpool.Pool, _ pgxpool.TraceAcquireStartData) context.Context {
	if t.on.Load() {
		panic(errHook)
	}
	return ctx
}

func (tracer) TraceAcquireEnd(context.Context, *pgxpool.Pool, pgxpool.TraceAcquireEndData) {}

func (tracer) TraceQueryStart(ctx context.Context, _ *pgx.Conn, _ pgx.TraceQueryStartData) context.Context {
	return ctx
}

func (tracer) TraceQueryEnd(context.Context, *pgx.Conn, pgx.TraceQueryEndData) {}

// Work whose hook panics has stopped waiting: a pool that serves all other calls at once does not
// count as too slow. The store's own connections do not count as too slow either, and are not used
// up.
func TestHookThatPanicsIsNoOverload(t *testing.T) {
	t.Parallel()
	var on atomic.Bool
	s := openShop(t, direct(t), func(cfg *pgxpool.Config) { cfg.ConnConfig.Tracer = tracer{on: &on} })
	require.NoError(t, s.store.Check(t.Context()))
	on.Store(true)
	for range 20 {
		require.PanicsWithValue(t, errHook, func() { _, _, _ = s.store.Begin(t.Context(), "k", "t") })
		require.PanicsWithValue(t, errHook, func() { _, _ = s.store.Get(t.Context(), "k") })
	}
	on.Store(false)
	l := s.locker(t)
	for i := range 12 { // few orders, of which each is served at once
		must.Run(t)(l.Once(t.Context(), fmt.Sprint(i), nil, order(fmt.Sprint(i))))
		time.Sleep(100 * time.Millisecond)
	}
}

// slowShop is a shop at the end of a line on which each answer takes 10 ms: its own 4
// connections have room for 400 claims a second, and 4 of the work for 100 orders, which
// take four answers each.
func slowShop(t *testing.T) *shop {
	t.Helper()
	proxy := sqlproxy.Postgres(t, pgtest.Shared(t).Addr(), func(*sqlproxy.Exchange) sqlproxy.Fault {
		return sqlproxy.Fault{Action: sqlproxy.DelayReply, Delay: 10 * time.Millisecond}
	})
	return openShop(t, func(db string) string { return proxy.URL(db, "postgres") }, func(cfg *pgxpool.Config) { cfg.MaxConns = 4 })
}
