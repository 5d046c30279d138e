// Package sqlproxy_test has the tests of internal/testkit/sqlproxy, which need a driver.
package sqlproxy_test

import (
	"context"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/httplatch/httplatch/internal/testkit/pgtest"
	"github.com/httplatch/httplatch/internal/testkit/sqlproxy"
	"github.com/httplatch/httplatch/lock/pgstore/internal/testkit/pgxtest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(pgtest.Main(m)) }

const (
	patience = 20 * time.Second       // for what comes soon
	short    = 500 * time.Millisecond // for an answer that never comes
)

// open makes a database with orders behind a proxy. direct is a connection past the proxy.
func open(t *testing.T, decide sqlproxy.Decide) (proxy *sqlproxy.Proxy, url string, direct *pgx.Conn) {
	t.Helper()
	c := pgtest.Shared(t)
	db := c.Database(t)
	direct = pgxtest.Connect(t, c.URL(db, ""))
	run(t, direct, "CREATE TABLE orders (id int)")
	proxy = sqlproxy.Postgres(t, c.Addr(), decide)
	return proxy, proxy.URL(db, "postgres"), direct
}

func run(t *testing.T, conn *pgx.Conn, sql string) {
	t.Helper()
	_, err := conn.Exec(t.Context(), sql)
	require.NoError(t, err)
}

func within(t *testing.T, d time.Duration, conn *pgx.Conn, sql string) error {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), d)
	defer cancel()
	_, err := conn.Exec(ctx, sql)
	return err //nolint:wrapcheck // for the test to judge
}

func count(t *testing.T, direct *pgx.Conn, query string, args ...any) (n int) {
	t.Helper()
	require.NoError(t, direct.QueryRow(t.Context(), query, args...).Scan(&n))
	return n
}

// TestFaultsAtCommit: the answer to a COMMIT that the client gets, and its outcome.
func TestFaultsAtCommit(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		fault  sqlproxy.Fault
		silent bool // the client gets nothing, not even the end of its connection
		rows   int
	}{
		{sqlproxy.Fault{Action: sqlproxy.LoseRequest}, true, 0},
		{sqlproxy.Fault{Action: sqlproxy.Freeze}, true, 0},
		{sqlproxy.Fault{Action: sqlproxy.LoseReply}, true, 1},
		{sqlproxy.Fault{Action: sqlproxy.LoseReplyAndCut}, false, 1},
		{sqlproxy.Fault{Action: sqlproxy.CutRequest}, false, 0},
		{sqlproxy.Fault{Action: sqlproxy.CutReply, Bytes: 3}, false, 1},
		{sqlproxy.Fault{Action: sqlproxy.CutReply, Bytes: 1000}, false, 1},
		{sqlproxy.Fault{Action: sqlproxy.DelayRequest, Delay: 2 * short}, true, 1},
		{sqlproxy.Fault{Action: sqlproxy.DelayReply, Delay: 2 * short}, true, 1},
	} {
		t.Run(tt.fault.Action.String(), func(t *testing.T) {
			t.Parallel()
			proxy, url, direct := open(t, func(x *sqlproxy.Exchange) sqlproxy.Fault {
				if x.Begins("COMMIT") {
					return tt.fault
				}
				return sqlproxy.Fault{}
			})
			conn := pgxtest.Connect(t, url)
			pid := conn.PgConn().PID()
			run(t, conn, "BEGIN")
			run(t, conn, "INSERT INTO orders VALUES (1)")
			if tt.silent {
				require.ErrorIs(t, within(t, short, conn, "COMMIT"), context.DeadlineExceeded)
			} else {
				err := within(t, patience, conn, "COMMIT")
				require.Error(t, err)
				require.NotErrorIs(t, err, context.DeadlineExceeded)
			}
			pgxtest.Leave(conn)
			proxy.Wait(t, tt.fault.Action, 1)
			sessions := func() int { return count(t, direct, "SELECT count(*) FROM pg_stat_activity WHERE pid = $1", pid) }
			if tt.fault.Action == sqlproxy.Freeze {
				require.Equal(t, 1, sessions(), "the server does not know that the client is gone")
			} else {
				require.Eventually(t, func() bool { return sessions() == 0 }, patience, short/10)
			}
			require.Equal(t, tt.rows, count(t, direct, "SELECT count(*) FROM orders"))
			require.Equal(t, 1, proxy.Count(tt.fault.Action))
			run(t, pgxtest.Connect(t, url), "SELECT 1") // other connections go on
		})
	}
}

// TestKnowsTheTexts of every way in which pgx sends statements, and of a CancelRequest.
func TestKnowsTheTexts(t *testing.T) {
	t.Parallel()
	var mu sync.Mutex
	var seen []string
	proxy, url, direct := open(t, func(x *sqlproxy.Exchange) sqlproxy.Fault {
		mu.Lock()
		defer mu.Unlock()
		switch {
		case x.Cancel:
			seen = append(seen, "cancel")
			return sqlproxy.Fault{Action: sqlproxy.LoseRequest}
		case len(x.SQL) == 0:
			seen = append(seen, "prepare "+strings.Join(x.Prepared, "; "))
		default:
			seen = append(seen, strings.Join(x.SQL, "; "))
		}
		return sqlproxy.Fault{}
	})
	take := func() []string {
		mu.Lock()
		defer mu.Unlock()
		defer func() { seen = nil }()
		return slices.Clone(seen)
	}
	conn := pgxtest.Connect(t, url)
	require.Empty(t, take(), "the start of a connection is no exchange")
	const insert = "INSERT INTO orders VALUES ($1)"
	for _, tt := range []struct {
		name string
		mode pgx.QueryExecMode
		want []string
	}{
		{"prepared at its first use", pgx.QueryExecModeCacheStatement, []string{"prepare " + insert, insert}},
		{"prepared before", pgx.QueryExecModeCacheStatement, []string{insert}},
		{"described", pgx.QueryExecModeDescribeExec, []string{"prepare " + insert, insert}},
		{"unnamed", pgx.QueryExecModeExec, []string{insert}},
		{"simple", pgx.QueryExecModeSimpleProtocol, []string{"INSERT INTO orders VALUES ( '7' )"}},
	} {
		_, err := conn.Exec(t.Context(), insert, tt.mode, 7)
		require.NoError(t, err, tt.name)
		require.Equal(t, tt.want, take(), tt.name)
	}
	require.Equal(t, 5, count(t, direct, "SELECT count(*) FROM orders"))

	pid := conn.PgConn().PID()
	require.Error(t, within(t, short, conn, "SELECT pg_sleep(60)"))
	proxy.Wait(t, sqlproxy.LoseRequest, 1)
	pgxtest.Leave(conn)
	require.Contains(t, take(), "cancel")
	require.Equal(t, 1, count(t, direct, "SELECT count(*) FROM pg_stat_activity WHERE pid = $1", pid), "it sleeps on")
}
