package pgstore_test

import (
	"bytes"
	"context"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/httplatch/httplatch/internal/testkit/pgtest"
	"github.com/httplatch/httplatch/lock"
	"github.com/httplatch/httplatch/lock/pgstore"
)

// hostile are names, and keys, that SQL would not read as one name.
var hostile = []string{
	`o'brien`,
	`it''s`,
	`say "x"`,
	`x"; DROP TABLE orders; --`,
	`x'; DROP TABLE orders; --`,
	`x'::regclass); DROP TABLE orders; --`,
	`back\slash\'`,
	`E'\'`,
	`$1`,
	`$$`,
	`/*`,
	`?`,
	"two\nlines",
	`Mixed Case`,
	`sélect`,
	`latch_entries_fence`,
	`latch_entries'`,
	strings.Repeat("n", 48),
}

// Each name is one name, and has its own table, index and sequence.
func TestTablesOfAnyName(t *testing.T) {
	t.Parallel()
	for _, mode := range []pgx.QueryExecMode{pgx.QueryExecModeCacheStatement, pgx.QueryExecModeExec, pgx.QueryExecModeSimpleProtocol} {
		t.Run(mode.String(), func(t *testing.T) {
			t.Parallel()
			c := pgtest.Shared(t)
			db := c.Database(t)
			pool := newPool(t, c.URL(db, "postgres"), func(cfg *pgxpool.Config) { cfg.ConnConfig.DefaultQueryExecMode = mode })
			c.Exec(t, db, `CREATE TABLE orders (name text); CREATE SCHEMA shop; CREATE SCHEMA "a""b'c;"`)
			for _, name := range append([]string{"shop.entries", `a"b'c;.it's`, `shop.latch_entries`}, hostile...) {
				useTable(t, newStore(t, pool, pgstore.WithTable(name)), name)
			}
			var tables int
			require.NoError(t, pool.QueryRow(t.Context(), `SELECT count(*) FROM pg_tables WHERE schemaname NOT IN ('pg_catalog', 'information_schema')`).Scan(&tables))
			require.Equal(t, 1+3+len(hostile), tables, "one for each name, and the orders")
		})
	}
}

// useTable makes every statement of a store that has migrated once.
func useTable(t *testing.T, s *pgstore.Store, name string) {
	t.Helper()
	ctx := t.Context()
	require.NoError(t, s.Migrate(ctx), name)
	require.NoError(t, s.Check(ctx), name)
	e, err := s.Claim(ctx, name, lock.Claim{Token: "t", Attempt: 1, Lease: time.Minute, Fenced: true})
	require.NoError(t, err, name)
	require.Equal(t, lock.Held, e.State)
	require.EqualValues(t, 1, e.Fence, "%s has a sequence of its own", name)
	ok, err := s.Renew(ctx, name, lock.Claim{Token: "t", Lease: time.Minute})
	require.NoError(t, err)
	require.True(t, ok)
	ok, err = s.Settle(ctx, name, lock.Claim{Token: "t"}, []byte(name), time.Minute)
	require.NoError(t, err)
	require.True(t, ok)
	page, _, err := s.Page(ctx, "", 10, nil)
	require.NoError(t, err)
	require.Len(t, page, 1, name)
	require.Equal(t, name, page[0].Key)
	for e, err := range s.List(ctx) {
		require.NoError(t, err)
		require.Equal(t, name, string(e.Receipt))
	}
	_, err = s.Claim(ctx, name, lock.Claim{Token: "u", Replaces: "t", Attempt: 2, Lease: time.Minute, Fenced: true})
	require.NoError(t, err)
	ok, err = s.Release(ctx, name, lock.Claim{Token: "t"})
	require.NoError(t, err)
	require.False(t, ok)
	ok, err = s.Forget(ctx, name, "t")
	require.NoError(t, err)
	require.True(t, ok)
	_, err = s.Sweep(ctx, 10)
	require.NoError(t, err)
	l := lock.New(s, lock.WithTransaction(), lock.WithLogger(quiet), lock.WithBudget(10*time.Second))
	defer func() { require.NoError(t, l.Close(context.WithoutCancel(ctx))) }()
	for range 2 {
		receipt, _, err := l.Once(ctx, name, nil, func(context.Context) ([]byte, error) { return []byte(name), nil })
		require.NoError(t, err)
		require.Equal(t, name, string(receipt))
	}
}

func TestNamesThatWithTableRefuses(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"", ".", "shop.", ".entries", "a.b.c", "a\x00b", "not utf-8 \xff", strings.Repeat("n", 49), strings.Repeat("n", 63), "shop." + strings.Repeat("n", 64)} {
		require.Panics(t, func() { pgstore.WithTable(name) }, "%q", name)
	}
}

// Keys are bytes, and no part of a statement.
func TestKeysOfAnyBytes(t *testing.T) {
	t.Parallel()
	for _, mode := range []pgx.QueryExecMode{pgx.QueryExecModeCacheStatement, pgx.QueryExecModeExec, pgx.QueryExecModeSimpleProtocol} {
		t.Run(mode.String(), func(t *testing.T) {
			t.Parallel()
			store := newStore(t, newPool(t, database(t), func(cfg *pgxpool.Config) { cfg.ConnConfig.DefaultQueryExecMode = mode }))
			random := make([]byte, 1024) // that no compression makes shorter
			for i, x := 0, uint32(1); i < len(random); i++ {
				x = x*1664525 + 1013904223
				random[i] = byte(x >> 24)
			}
			keys := append([]string{"\x00", "a\x00b", "a", "\xff\xfe", `\x41`, "A", " ", string(random), string(bytes.Repeat([]byte{0xff}, 1024))}, hostile...)
			for _, key := range keys {
				text := []byte(key)
				e, err := store.Claim(t.Context(), key, lock.Claim{Token: key[:min(len(key), 255)], Fingerprint: text, Owner: key, Attempt: 1, Lease: time.Minute, Fenced: true})
				require.NoError(t, err, "%q", key)
				require.Equal(t, lock.Held, e.State, "%q is another's", key)
				require.Equal(t, key, e.Owner)
				require.Equal(t, text, e.Fingerprint)
			}
			found := map[string]bool{}
			for e, err := range store.List(t.Context()) {
				require.NoError(t, err)
				found[e.Key] = true
			}
			require.Len(t, found, len(keys))
			for _, key := range keys {
				require.True(t, found[key], "%q", key)
			}
		})
	}
}

// Many processes may migrate at once, and again, while others use the table.
func TestMigrateByManyAtOnce(t *testing.T) {
	t.Parallel()
	url := database(t)
	stores := make([]*pgstore.Store, 8)
	for i := range stores {
		stores[i] = pgstore.New(newPool(t, url))
		t.Cleanup(stores[i].Close)
	}
	for range 3 {
		errs := make([]error, len(stores))
		var wg sync.WaitGroup
		for i, s := range stores {
			wg.Go(func() { errs[i] = s.Migrate(t.Context()) })
		}
		wg.Wait()
		for _, err := range errs {
			require.NoError(t, err)
		}
	}
	require.NoError(t, stores[0].Check(t.Context()))
	e, err := stores[0].Claim(t.Context(), "k", lock.Claim{Token: "t", Attempt: 1, Lease: time.Minute})
	require.NoError(t, err)
	require.Equal(t, lock.Held, e.State)
	migrate(t, stores[1])
	e, err = stores[2].Get(t.Context(), "k")
	require.NoError(t, err)
	require.Equal(t, "t", e.Token, "the earlier entry is unchanged")
}
