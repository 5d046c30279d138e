package pgproxy_test

import (
	"context"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/httplatch/httplatch/internal/testkit/pgproxy"
	"github.com/httplatch/httplatch/internal/testkit/pgtest"
	"github.com/httplatch/httplatch/lock/pgstore/internal/testkit/pgxtest"
)

// TestPassesAndKnowsTheTexts: of every way in which pgx sends statements.
func TestPassesAndKnowsTheTexts(t *testing.T) {
	t.Parallel()
	var seen tape
	s := open(t, seen.decide)
	conn := s.client(t)
	require.Empty(t, seen.take(), "the start of a connection is no exchange")
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
		before := s.orders(t)
		_, err := conn.Exec(t.Context(), insert, tt.mode, 7)
		require.NoError(t, err, tt.name)
		require.Equal(t, before+1, s.orders(t), tt.name)
		require.Equal(t, tt.want, seen.take(), tt.name)
	}

	tx, err := conn.Begin(t.Context())
	require.NoError(t, err)
	batch := &pgx.Batch{}
	batch.Queue(insert, 8)
	batch.Queue("DELETE FROM orders WHERE id = $1", 7)
	require.NoError(t, tx.SendBatch(t.Context(), batch).Close())
	require.NoError(t, tx.Commit(t.Context()))
	require.Equal(t, []string{"begin", "prepare DELETE FROM orders WHERE id = $1", insert + "; DELETE FROM orders WHERE id = $1", "commit"}, seen.take())
	require.Equal(t, 1, s.orders(t))

	rows := pgx.CopyFromSlice(3, func(i int) ([]any, error) { return []any{i}, nil })
	n, err := conn.CopyFrom(t.Context(), pgx.Identifier{"orders"}, []string{"id"}, rows)
	require.NoError(t, err)
	require.EqualValues(t, 3, n)
	require.Equal(t, 4, s.orders(t))
	_, err = conn.Exec(t.Context(), "NOSUCH")
	require.ErrorContains(t, err, "syntax error")
	var large string
	require.NoError(t, conn.QueryRow(t.Context(), "SELECT repeat('x', 3000000)").Scan(&large))
	require.Len(t, large, 3000000)
}

func TestNumbersConnectionsAndExchanges(t *testing.T) {
	t.Parallel()
	var seen tape
	s := open(t, seen.decide)
	for range 2 {
		conn := s.client(t)
		run(t, conn, "BEGIN; SELECT 1")
		run(t, conn, "\n commit;")
	}
	require.Len(t, seen.exchanges, 4)
	for i, x := range seen.exchanges {
		require.Equal(t, []int{i/2 + 1, i%2 + 1}, []int{x.Conn, x.Ordinal})
		require.Equal(t, i%2 == 1, x.Begins("COMMIT"))
		require.Equal(t, i%2 == 0, x.Contains("Select"))
	}
	require.Equal(t, 4, s.proxy.Count(pgproxy.Pass))
	s.proxy.Wait(t, pgproxy.Pass, 4)
}

func TestNotificationsPass(t *testing.T) {
	t.Parallel()
	s := open(t, nil)
	conn := s.client(t)
	run(t, conn, "LISTEN news")
	run(t, s.direct, "NOTIFY news, 'hello'")
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	n, err := conn.WaitForNotification(ctx)
	require.NoError(t, err)
	require.Equal(t, "hello", n.Payload)
}

// TestCancel: pgx sends a CancelRequest for a context that ends, on a separate connection.
func TestCancel(t *testing.T) {
	t.Parallel()
	var seen tape
	s := open(t, seen.decide)
	conn := s.client(t)
	pid := conn.PgConn().PID()
	require.Error(t, impatiently(t, conn, "SELECT pg_sleep(60)"))
	<-conn.PgConn().CleanupDone()
	require.Equal(t, []string{"SELECT pg_sleep(60)", "cancel"}, without(seen.take(), "prepare "))
	require.Eventually(t, func() bool { return s.sessions(t, pid) == 0 }, patience, short/10, "it was interrupted")

	s.proxy.Decide(func(x *pgproxy.Exchange) pgproxy.Fault {
		if x.Cancel {
			return pgproxy.Fault{Action: pgproxy.LoseRequest}
		}
		return pgproxy.Fault{}
	})
	conn = s.client(t)
	pid = conn.PgConn().PID()
	require.Error(t, impatiently(t, conn, "SELECT pg_sleep(60)"))
	s.proxy.Wait(t, pgproxy.LoseRequest, 1)
	pgxtest.Leave(conn)
	require.Equal(t, 1, s.sessions(t, pid), "it sleeps on")
}

func without(texts []string, prefix string) (others []string) {
	for _, text := range texts {
		if !strings.HasPrefix(text, prefix) {
			others = append(others, text)
		}
	}
	return others
}

func TestEncryptionIsRefused(t *testing.T) {
	t.Parallel()
	s := open(t, nil)
	url := s.proxy.URL(s.db, "postgres")
	run(t, pgxtest.Connect(t, strings.Replace(url, "sslmode=disable", "sslmode=prefer", 1)), "SELECT 1")
	_, err := pgx.Connect(t.Context(), strings.Replace(url, "sslmode=disable", "sslmode=require", 1))
	require.ErrorContains(t, err, "refused TLS")
}

func TestServerThatIsDown(t *testing.T) {
	t.Parallel()
	c := pgtest.Start(t)
	p := pgproxy.Start(t, c.Addr(), nil)
	conn := pgxtest.Connect(t, p.URL("postgres", "postgres"))
	c.Kill()
	_, err := conn.Exec(t.Context(), "SELECT 1")
	require.Error(t, err)
	_, err = pgx.Connect(t.Context(), p.URL("postgres", "postgres"))
	require.Error(t, err)
	c.Restart(t)
	run(t, pgxtest.Connect(t, p.URL("postgres", "postgres")), "SELECT 1")
}

// TestPgBouncer: it may be on either side of the proxy.
func TestPgBouncer(t *testing.T) {
	t.Parallel()
	var seen tape
	s := open(t, seen.decide)
	between := pgtest.PgBouncer(t, s.proxy.Addr())
	behind := pgproxy.Start(t, pgtest.PgBouncer(t, s.cluster.Addr()).Addr(), seen.decide)
	for name, url := range map[string]string{"in front": between.URL(s.db, ""), "behind": behind.URL(s.db, "postgres")} {
		conn := pgxtest.Connect(t, url+"&default_query_exec_mode=exec")
		seen.take()
		run(t, conn, "BEGIN")
		_, err := conn.Exec(t.Context(), "INSERT INTO orders VALUES ($1)", 1)
		require.NoError(t, err, name)
		run(t, conn, "COMMIT")
		require.Subset(t, seen.take(), []string{"BEGIN", "INSERT INTO orders VALUES ($1)", "COMMIT"}, name)
	}
	require.Equal(t, 2, s.orders(t))
}
