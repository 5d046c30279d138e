// Package pgproxy_test has the tests of internal/testkit/pgproxy, which need a driver.
package pgproxy_test

import (
	"context"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/httplatch/httplatch/internal/testkit/pgproxy"
	"github.com/httplatch/httplatch/internal/testkit/pgtest"
	"github.com/httplatch/httplatch/lock/pgstore/internal/testkit/pgxtest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(pgtest.Main(m)) }

const (
	// patience is the time for which a test waits for an event that comes soon.
	// short is the time for which a client waits for an answer that never comes.
	patience = 20 * time.Second
	short    = 500 * time.Millisecond
)

// shop is a database with orders, behind a proxy.
type shop struct {
	cluster *pgtest.Cluster
	db      string
	direct  *pgx.Conn
	proxy   *pgproxy.Proxy
}

func open(t *testing.T, decide pgproxy.Decide) *shop {
	t.Helper()
	c := pgtest.Shared(t)
	s := &shop{cluster: c, db: c.Database(t)}
	s.direct = pgxtest.Connect(t, c.URL(s.db, ""))
	run(t, s.direct, "CREATE TABLE orders (id int)")
	s.proxy = pgproxy.Start(t, c.Addr(), decide)
	return s
}

// client connects through the proxy.
func (s *shop) client(t *testing.T) *pgx.Conn {
	t.Helper()
	return pgxtest.Connect(t, s.proxy.URL(s.db, "postgres"))
}

func run(t *testing.T, conn *pgx.Conn, sql string) {
	t.Helper()
	_, err := conn.Exec(t.Context(), sql)
	require.NoError(t, err)
}

// impatiently executes with a short timeout.
func impatiently(t *testing.T, conn *pgx.Conn, sql string) error {
	t.Helper()
	return within(t, short, conn, sql)
}

func within(t *testing.T, d time.Duration, conn *pgx.Conn, sql string) error {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), d)
	defer cancel()
	_, err := conn.Exec(ctx, sql)
	return err //nolint:wrapcheck // for the test to judge
}

// orders returns the number of orders.
func (s *shop) orders(t *testing.T) (n int) {
	t.Helper()
	require.NoError(t, s.direct.QueryRow(t.Context(), "SELECT count(*) FROM orders").Scan(&n))
	return n
}

// sessions returns the number of sessions with this pid.
func (s *shop) sessions(t *testing.T, pid uint32) (n int) {
	t.Helper()
	require.NoError(t, s.direct.QueryRow(t.Context(), "SELECT count(*) FROM pg_stat_activity WHERE pid = $1", pid).Scan(&n))
	return n
}

// at decides on the exchanges that begin with a word.
func at(word string, f pgproxy.Fault) pgproxy.Decide {
	return func(x *pgproxy.Exchange) pgproxy.Fault {
		if x.Begins(word) {
			return f
		}
		return pgproxy.Fault{}
	}
}

// tape records the exchanges of a proxy.
type tape struct {
	mu        sync.Mutex
	exchanges []pgproxy.Exchange
}

func (l *tape) decide(x *pgproxy.Exchange) pgproxy.Fault {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.exchanges = append(l.exchanges, *x)
	return pgproxy.Fault{}
}

// take returns the exchanges since the last call: "SQL; SQL", or "prepare SQL", or "cancel".
func (l *tape) take() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	var texts []string
	for _, x := range l.exchanges {
		switch {
		case x.Cancel:
			texts = append(texts, "cancel")
		case len(x.SQL) == 0:
			texts = append(texts, "prepare "+strings.Join(x.Prepared, "; "))
		default:
			texts = append(texts, strings.Join(x.SQL, "; "))
		}
	}
	l.exchanges = nil
	return texts
}
