package main_test

import (
	"context"
	"net/http"
	"path/filepath"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/httplatch/httplatch/internal/testkit/must"
	"github.com/httplatch/httplatch/internal/testkit/mysqltest"
	"github.com/httplatch/httplatch/internal/testkit/pgtest"
)

// stores are the arguments of desks that share their orders, in memory with themselves only.
var stores = map[string]func(t *testing.T) []string{
	"memory":     func(*testing.T) []string { return nil },
	"PostgreSQL": func(t *testing.T) []string { t.Helper(); return newDatabase(t).patiently() },
	"MariaDB": func(t *testing.T) []string {
		t.Helper()
		return []string{"-mysql", mysqltest.Shared(t).DatabaseDSN(t), "-budget", "10s"}
	},
	"SQLite": func(t *testing.T) []string {
		t.Helper()
		return []string{"-sqlite", filepath.Join(t.TempDir(), "desk.db"), "-budget", "10s"}
	},
}

// TestOrders: requireReplays runs over the other router in TestPoliciesOfAFile.
func TestOrders(t *testing.T) {
	t.Parallel()
	for name, args := range stores {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			shared := append(args(t), "-work", "0s", "-router")
			first, second := startDesk(t, append(shared, "chi")...), startDesk(t, append(shared, "stdlib")...)
			if name == "memory" {
				requireSharedOrders(t, first, first)
				first = second
			}
			requireSharedOrders(t, first, second)
			requireReplays(t, startDesk(t, append(args(t), "-work", "0s", "-cooldown", "1h", "-fencing", "-router", "stdlib")...))
		})
	}
}

func requireSharedOrders(t *testing.T, first, second *running) {
	t.Helper()
	got := first.order("42", "Idempotency-Key", "k")
	require.Equal(t, http.StatusCreated, got.status, got.body)
	require.Equal(t, "application/json", got.header.Get("Content-Type"))
	again := second.order("42", "Idempotency-Key", "k")
	require.Equal(t, "true", again.header.Get("Idempotent-Replayed"))
	require.Equal(t, got.body, again.body)
	require.Equal(t, http.StatusCreated, second.order("42").status, "a lock is no transaction")

	placed := first.orders("42")
	require.Equal(t, placed, second.orders("42"), "all desks have the same table")
	require.Len(t, placed, 2)
	require.JSONEq(t, got.body, `{"id":"`+placed[0].ID+`","user":"42","sku":"tea","quantity":1}`, "the oldest is the first")

	require.JSONEq(t, `{"id":"`+placed[0].ID+`","status":"paid"}`, second.pay(placed[0].ID).body)
	paid := first.do("GET", got.header.Get("Location"), "").body
	require.JSONEq(t, `{"id":"`+placed[0].ID+`","user":"42","sku":"tea","quantity":1,"status":"paid"}`, paid)
	require.Equal(t, "paid", first.orders("42")[0].Status)
	require.Equal(t, "placed", first.orders("42")[1].Status)
	requireProblem(t, http.StatusNotFound, first.pay("nope"))
	requireProblem(t, http.StatusNotFound, first.do("GET", "/orders/nope", ""))
	require.Equal(t, "[]\n", first.do("GET", "/orders?user=43", "").body)
	require.Equal(t, http.StatusOK, first.do("GET", "/readyz", "").status)
	require.Empty(t, first.locks())
}

// TestOrdersTableIsGone: a statement that fails is an order that was not placed.
func TestOrdersTableIsGone(t *testing.T) {
	t.Parallel()
	db := newDatabase(t)
	c := startDesk(t, db.patiently("-work", "0s")...)
	must.Get(db.Exec(t.Context(), "ALTER TABLE orders RENAME TO other"))(t)
	for _, header := range [][]string{nil, {"Idempotency-Key", "k"}} {
		got := c.order("42", header...)
		requireProblem(t, http.StatusServiceUnavailable, got)
		require.NotContains(t, got.body, "relation", "what the server says is for operators")
	}
	requireProblem(t, http.StatusServiceUnavailable, c.do("GET", "/orders?user=42", ""))
	requireProblem(t, http.StatusServiceUnavailable, c.do("GET", "/", ""))
	must.Get(db.Exec(t.Context(), "ALTER TABLE other RENAME TO orders"))(t)
	require.Equal(t, http.StatusCreated, c.order("42", "Idempotency-Key", "k").status)
	require.Len(t, c.orders("42"), 1)
	c.signal()
	require.NoError(t, <-c.ended)
	require.Contains(t, c.stderr.String(), `relation \"orders\" does not exist`)
}

// TestDeskStartsDuringVacuum: a desk that comes back while VACUUM holds its lock on the orders
// starts, and holds up no order.
func TestDeskStartsDuringVacuum(t *testing.T) {
	t.Parallel()
	db := newDatabase(t)
	first := startDesk(t, db.patiently("-work", "0s")...)
	for _, table := range []string{"orders", "order_fences", "latch_entries"} {
		tx := must.Get(db.Begin(t.Context()))(t)
		must.Get(tx.Exec(t.Context(), "LOCK TABLE "+table+" IN SHARE UPDATE EXCLUSIVE MODE"))(t) // as VACUUM does
		second := startDesk(t, db.patiently("-work", "0s")...)
		require.Equal(t, http.StatusCreated, first.order("42", "Idempotency-Key", table).status)
		require.Equal(t, http.StatusCreated, second.order("43", "Idempotency-Key", table).status)
		require.NoError(t, tx.Rollback(t.Context()))
	}
	require.Equal(t, 6, db.count(t, "SELECT count(*) FROM orders"))
}

type database struct {
	*pgx.Conn

	url string
}

func newDatabase(t *testing.T) *database {
	t.Helper()
	url := pgtest.DatabaseURL(t)
	conn := must.Get(pgx.Connect(t.Context(), url))(t)
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), 30*time.Second)
		defer cancel()
		require.NoError(t, conn.Close(ctx))
	})
	return &database{conn, url}
}

// patiently has a desk use the database with a budget within which a busy machine answers
// too.
func (db *database) patiently(args ...string) []string {
	return append([]string{"-postgres", db.url, "-budget", "10s"}, args...)
}

func (db *database) count(t *testing.T, statement string, args ...any) (n int) {
	t.Helper()
	require.NoError(t, db.QueryRow(t.Context(), statement, args...).Scan(&n))
	return n
}
