package main_test

import (
	"context"
	"net/http"
	"path/filepath"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/httplatch/httplatch/internal/testkit/mysqltest"
	"github.com/httplatch/httplatch/internal/testkit/pgtest"
)

// databases are the arguments of a desk whose orders are in a database, or a file, of the test's own.
var databases = map[string]func(t *testing.T) []string{
	"PostgreSQL": func(t *testing.T) []string { t.Helper(); return newDatabase(t).patiently("-work", "0s") },
	"MariaDB": func(t *testing.T) []string {
		t.Helper()
		return []string{"-mysql", mysqltest.Shared(t).DatabaseDSN(t), "-budget", "10s", "-work", "0s"}
	},
	"SQLite": inFile,
}

func inFile(t *testing.T) []string {
	t.Helper()
	return []string{"-sqlite", filepath.Join(t.TempDir(), "desk.db"), "-budget", "10s", "-work", "0s"}
}

func TestOrdersInADatabase(t *testing.T) {
	t.Parallel()
	for name, args := range databases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			shared := args(t)
			requireSharedOrders(t, startDesk(t, shared...), startDesk(t, append(shared, "-router", "stdlib")...))
			requireReplays(t, startDesk(t, append(args(t), "-cooldown", "1h", "-fencing")...))
			requireFailuresRolledBack(t, args)
		})
	}
}

// requireSharedOrders requires that two desks share their orders and answers.
func requireSharedOrders(t *testing.T, first, second *running) {
	t.Helper()
	got := first.order("42", "Idempotency-Key", "k")
	require.Equal(t, http.StatusCreated, got.status, got.body)
	again := second.order("42", "Idempotency-Key", "k")
	require.Equal(t, "true", again.header.Get("Idempotent-Replayed"))
	require.Equal(t, got.body, again.body)
	require.Equal(t, http.StatusCreated, second.order("42").status, "a lock is no transaction")

	placed := first.orders("42")
	require.Equal(t, placed, second.orders("42"), "all desks have the same table")
	require.Len(t, placed, 2)
	require.JSONEq(t, got.body, `{"id":"`+placed[0].ID+`","user":"42","sku":"tea","quantity":1}`, "the oldest is the first")

	require.Equal(t, http.StatusOK, second.pay(placed[0].ID).status)
	require.Equal(t, http.StatusOK, first.do("GET", got.header.Get("Location"), "").status)
	require.Equal(t, "paid", first.orders("42")[0].Status)
	require.Equal(t, "placed", first.orders("42")[1].Status)
	requireProblem(t, http.StatusNotFound, first.pay("nope"))
	requireProblem(t, http.StatusNotFound, first.do("GET", "/orders/nope", ""))
	require.Equal(t, "[]\n", first.do("GET", "/orders?user=43", "").body)
	require.Equal(t, http.StatusOK, first.do("GET", "/readyz", "").status)
	require.Empty(t, first.locks())
}

// requireFailuresRolledBack requires of desks with the arguments that args returns: what fails after the
// order was written leaves nothing of it, and what has called Commit does not run again.
func requireFailuresRolledBack(t *testing.T, args func(t *testing.T) []string) {
	t.Helper()
	tests := []struct {
		name   string
		header []string
		says   string // the first answer; "" if there is none
		left   int    // orders then
		want   int    // the status of the next try
		orders int    // then
	}{
		{"500", []string{"X-Fail", "500"}, "The order is rolled back.", 0, http.StatusCreated, 1},
		{"panic", []string{"X-Fail", "panic"}, "", 0, http.StatusCreated, 1},
		{"500, committed", []string{"X-Fail", "500", "X-Commit", "1"}, "The order is rolled back.", 0, http.StatusConflict, 0},
		{"panic, committed", []string{"X-Fail", "panic", "X-Commit", "1"}, "", 0, http.StatusConflict, 0},
		{"no failure, committed", []string{"X-Commit", "1"}, `"sku":"tea"`, 1, http.StatusCreated, 1},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			c := startDesk(t, args(t)...)
			got, err := c.try("POST", "/orders", order, append(tt.header, "X-User-ID", "42", "Idempotency-Key", "k")...)
			require.Equal(t, tt.says == "", err != nil, "a panic ends its connection")
			require.Contains(t, got.body, tt.says)
			require.Len(t, c.orders("42"), tt.left)
			got = c.order("42", "Idempotency-Key", "k")
			require.Equal(t, tt.want, got.status, got.body)
			require.Len(t, c.orders("42"), tt.orders)
		})
	}
}

// TestOrdersTableIsGone: a statement that fails is an order that was not placed.
func TestOrdersTableIsGone(t *testing.T) {
	t.Parallel()
	db := newDatabase(t)
	c := startDesk(t, db.patiently("-work", "0s")...)
	_, err := db.Exec(t.Context(), "ALTER TABLE orders RENAME TO other")
	require.NoError(t, err)
	for _, header := range [][]string{nil, {"Idempotency-Key", "k"}} {
		got := c.order("42", header...)
		requireProblem(t, http.StatusServiceUnavailable, got)
		require.NotContains(t, got.body, "relation", "what the server says is for operators")
	}
	requireProblem(t, http.StatusServiceUnavailable, c.do("GET", "/orders?user=42", ""))
	requireProblem(t, http.StatusServiceUnavailable, c.do("GET", "/", ""))
	_, err = db.Exec(t.Context(), "ALTER TABLE other RENAME TO orders")
	require.NoError(t, err)
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
		tx, err := db.Begin(t.Context())
		require.NoError(t, err)
		_, err = tx.Exec(t.Context(), "LOCK TABLE "+table+" IN SHARE UPDATE EXCLUSIVE MODE") // as VACUUM does
		require.NoError(t, err)
		second := startDesk(t, db.patiently("-work", "0s")...)
		require.Equal(t, http.StatusCreated, first.order("42", "Idempotency-Key", table).status)
		require.Equal(t, http.StatusCreated, second.order("43", "Idempotency-Key", table).status)
		require.NoError(t, tx.Rollback(t.Context()))
	}
	require.Equal(t, 6, db.count(t, "SELECT count(*) FROM orders"))
}

// TestRestartOverSQLite: a desk that has ended and begins again knows its orders and answers.
func TestRestartOverSQLite(t *testing.T) {
	t.Parallel()
	args := inFile(t)
	first := startDesk(t, args...)
	got := first.order("42", "Idempotency-Key", "k")
	require.Equal(t, http.StatusCreated, got.status, got.body)
	first.signal()
	require.NoError(t, <-first.ended)

	second := startDesk(t, args...)
	again := second.order("42", "Idempotency-Key", "k")
	require.Equal(t, "true", again.header.Get("Idempotent-Replayed"))
	require.Equal(t, got.body, again.body)
	require.Len(t, second.orders("42"), 1)
}

// database is one of a real PostgreSQL for a test.
type database struct {
	*pgx.Conn

	url string
}

func newDatabase(t *testing.T) *database {
	t.Helper()
	url := pgtest.DatabaseURL(t)
	conn, err := pgx.Connect(t.Context(), url)
	require.NoError(t, err)
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

// count returns the number that a statement selects.
func (db *database) count(t *testing.T, statement string, args ...any) (n int) {
	t.Helper()
	require.NoError(t, db.QueryRow(t.Context(), statement, args...).Scan(&n))
	return n
}
