package campaign_test

import (
	"context"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/httplatch/httplatch/internal/testkit/once"
	"github.com/httplatch/httplatch/internal/testkit/pgtest"
	"github.com/httplatch/httplatch/lock"
	"github.com/httplatch/httplatch/lock/pgstore"
)

const (
	lease   = 1500 * time.Millisecond
	budget  = 500 * time.Millisecond
	callers = 8
)

// shop is a server, and the campaign there.
type shop struct {
	*once.Campaign

	t       *testing.T
	cluster *pgtest.Cluster

	upstream string // of the processes
	bounced  bool
	broken   func(*pgstore.Store, *pgxpool.Pool) lock.Store
	db       string
}

func start(t *testing.T, bounced bool, broken func(*pgstore.Store, *pgxpool.Pool) lock.Store) *shop {
	t.Helper()
	w := &shop{
		Campaign: once.New(t), t: t, bounced: bounced, broken: broken,
		cluster: pgtest.Start(t, "fsync=on", "max_connections=300", "restart_after_crash=on"),
	}
	w.upstream = w.cluster.Addr()
	if bounced {
		w.upstream = pgtest.PgBouncer(t, w.cluster.Addr(), "max_client_conn=1000", "default_pool_size=60", "server_login_retry=1").Addr()
	}
	w.db = w.cluster.Database(t)
	w.cluster.Exec(t, w.db, "CREATE TABLE orders (name text, answer bytea)")
	store, err := pgstore.Open(t.Context(), w.cluster.URL(w.db, "postgres"))
	require.NoError(t, err)
	store.Close()
	return w
}

// Orders is part of [once.Shop].
func (w *shop) Orders(ctx context.Context) (rows []once.Row, ok bool) {
	return ordersOf(ctx, w.cluster.URL(w.db, "postgres"))
}

// ordersOf returns the rows that were committed. ok is false while the server does not answer.
func ordersOf(ctx context.Context, url string) (all []once.Row, ok bool) {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	conn, err := pgx.Connect(ctx, url)
	if err != nil {
		return nil, false // it is restarting
	}
	defer conn.Close(ctx)
	rows, err := conn.Query(ctx, "SELECT name, answer FROM orders")
	if err != nil {
		return nil, false
	}
	all, err = pgx.CollectRows(rows, pgx.RowToStructByPos[once.Row])
	return all, err == nil
}
