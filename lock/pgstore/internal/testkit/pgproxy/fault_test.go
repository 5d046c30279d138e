package pgproxy_test

import (
	"context"
	"strconv"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/httplatch/httplatch/internal/testkit/pgproxy"
	"github.com/httplatch/httplatch/internal/testkit/pgtest"
	"github.com/httplatch/httplatch/lock/pgstore/internal/testkit/pgxtest"
)

// order begins a transaction with a row.
func order(t *testing.T, conn *pgx.Conn) {
	t.Helper()
	run(t, conn, "BEGIN")
	run(t, conn, "INSERT INTO orders VALUES (1)")
}

// TestFaultsAtCommit checks the answer to a COMMIT that the client gets, and its outcome.
func TestFaultsAtCommit(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		fault  pgproxy.Fault
		silent bool // the client gets nothing, not even the end of its connection
		rows   int
	}{
		{pgproxy.Fault{Action: pgproxy.LoseRequest}, true, 0},
		{pgproxy.Fault{Action: pgproxy.Freeze}, true, 0},
		{pgproxy.Fault{Action: pgproxy.LoseReply}, true, 1},
		{pgproxy.Fault{Action: pgproxy.LoseReplyAndCut}, false, 1},
		{pgproxy.Fault{Action: pgproxy.CutRequest}, false, 0},
		{pgproxy.Fault{Action: pgproxy.CutReply, Bytes: 3}, false, 1},
		{pgproxy.Fault{Action: pgproxy.CutReply, Bytes: 1000}, false, 1},
		{pgproxy.Fault{Action: pgproxy.DelayRequest, Delay: 2 * short}, true, 1},
		{pgproxy.Fault{Action: pgproxy.DelayReply, Delay: 2 * short}, true, 1},
	} {
		t.Run(tt.fault.Action.String(), func(t *testing.T) {
			t.Parallel()
			s := open(t, at("COMMIT", tt.fault))
			conn := s.client(t)
			order(t, conn)
			if tt.silent {
				require.ErrorIs(t, impatiently(t, conn, "COMMIT"), context.DeadlineExceeded)
			} else {
				err := within(t, patience, conn, "COMMIT")
				require.Error(t, err)
				require.NotErrorIs(t, err, context.DeadlineExceeded)
			}
			pgxtest.Leave(conn)
			s.proxy.Wait(t, tt.fault.Action, 1)
			require.Equal(t, tt.rows, s.orders(t))
			require.Equal(t, 1, s.proxy.Count(tt.fault.Action))
			run(t, s.client(t), "SELECT 1") // other connections go on
		})
	}
}

func TestLateRequestOfAClientThatIsGone(t *testing.T) {
	t.Parallel()
	s := open(t, at("COMMIT", pgproxy.Fault{Action: pgproxy.DelayRequest, Delay: 3 * short}))
	conn := s.client(t)
	pid := conn.PgConn().PID()
	order(t, conn)
	began := time.Now()
	require.ErrorIs(t, impatiently(t, conn, "COMMIT"), context.DeadlineExceeded)
	pgxtest.Leave(conn)
	if rows, sessions := s.orders(t), s.sessions(t, pid); time.Since(began) < 3*short { // always, unless the machine stops for a while
		require.Zero(t, rows)
		require.Equal(t, 1, sessions, "the server does not know")
	}
	s.proxy.Wait(t, pgproxy.DelayRequest, 1)
	require.GreaterOrEqual(t, time.Since(began), 3*short)
	require.Equal(t, 1, s.orders(t))
	require.Eventually(t, func() bool { return s.sessions(t, pid) == 0 }, patience, short/10)
}

// TestWhoLearnsThatTheClientIsGone: the server does after a lost request, and
// never after a freeze, where the transaction keeps its locks.
func TestWhoLearnsThatTheClientIsGone(t *testing.T) {
	t.Parallel()
	for _, action := range []pgproxy.Action{pgproxy.LoseRequest, pgproxy.Freeze} {
		t.Run(action.String(), func(t *testing.T) {
			t.Parallel()
			s := open(t, at("COMMIT", pgproxy.Fault{Action: action}))
			run(t, s.direct, "INSERT INTO orders VALUES (2)")
			conn := s.client(t)
			pid := conn.PgConn().PID()
			run(t, conn, "BEGIN")
			run(t, conn, "UPDATE orders SET id = 3")
			require.Error(t, impatiently(t, conn, "COMMIT"))
			pgxtest.Leave(conn)

			run(t, s.direct, "SET lock_timeout = '500ms'")
			_, err := s.direct.Exec(t.Context(), "SELECT FROM orders FOR UPDATE")
			if action == pgproxy.Freeze {
				require.ErrorContains(t, err, "lock timeout")
				require.Equal(t, 1, s.sessions(t, pid))
				run(t, s.direct, "SELECT pg_terminate_backend("+strconv.FormatUint(uint64(pid), 10)+")")
				run(t, s.direct, "SELECT FROM orders FOR UPDATE")
			} else {
				require.NoError(t, err)
			}
		})
	}
}

func TestDelayReplyAppliesAtOnce(t *testing.T) {
	t.Parallel()
	const delay = 2 * time.Second
	s := open(t, at("COMMIT", pgproxy.Fault{Action: pgproxy.DelayReply, Delay: delay}))
	conn := s.client(t)
	order(t, conn)
	began := time.Now()
	done := make(chan error)
	go func() {
		_, err := conn.Exec(t.Context(), "COMMIT")
		done <- err
	}()
	require.Eventually(t, func() bool { return s.orders(t) == 1 }, patience, time.Millisecond)
	applied := time.Since(began)
	require.NoError(t, <-done)
	require.GreaterOrEqual(t, time.Since(began), delay)
	require.Less(t, applied, delay)
}

// TestCutReplyPassesSoManyBytes: the client has the row's description and not the row.
func TestCutReplyPassesSoManyBytes(t *testing.T) {
	t.Parallel()
	s := open(t, at("SELECT", pgproxy.Fault{Action: pgproxy.CutReply, Bytes: 20}))
	conn := s.client(t)
	require.NoError(t, conn.PgConn().Conn().SetDeadline(time.Now().Add(patience)))
	raw := conn.PgConn().Conn()
	_, err := raw.Write([]byte("Q\x00\x00\x00\x0dSELECT 1\x00"))
	require.NoError(t, err)
	got := make([]byte, 100)
	total := 0
	for err == nil {
		var n int
		n, err = raw.Read(got[total:])
		total += n
	}
	require.Equal(t, 20, total)
	require.Equal(t, byte('T'), got[0])
}

// TestFaultsBehindPgBouncer: the client of PgBouncer is notified of a cut, and the pool goes on.
func TestFaultsBehindPgBouncer(t *testing.T) {
	t.Parallel()
	s := open(t, at("COMMIT", pgproxy.Fault{Action: pgproxy.LoseReplyAndCut}))
	b := pgtest.PgBouncer(t, s.proxy.Addr(), "server_login_retry=0")
	conn := pgxtest.Connect(t, b.URL(s.db, "")+"&default_query_exec_mode=exec")
	order(t, conn)
	_, err := conn.Exec(t.Context(), "COMMIT")
	require.Error(t, err)
	s.proxy.Wait(t, pgproxy.LoseReplyAndCut, 1)
	require.Equal(t, 1, s.orders(t))
	run(t, pgxtest.Connect(t, b.URL(s.db, "")+"&default_query_exec_mode=exec"), "SELECT 1")
}

func TestProxyEndsWithAllThatItHolds(t *testing.T) {
	t.Parallel()
	s := open(t, nil)
	var conn *pgx.Conn
	t.Run("proxy", func(t *testing.T) {
		p := pgproxy.Start(t, s.cluster.Addr(), at("COMMIT", pgproxy.Fault{Action: pgproxy.DelayRequest, Delay: time.Hour}))
		ctx, cancel := context.WithTimeout(t.Context(), patience)
		defer cancel()
		var err error
		conn, err = pgx.Connect(ctx, p.URL(s.db, "postgres"))
		require.NoError(t, err)
		order(t, conn)
		require.ErrorIs(t, impatiently(t, conn, "COMMIT"), context.DeadlineExceeded)
	})
	pgxtest.Leave(conn)
	require.Eventually(t, func() bool { return s.sessions(t, conn.PgConn().PID()) == 0 }, patience, short/10)
	require.Zero(t, s.orders(t))
}
