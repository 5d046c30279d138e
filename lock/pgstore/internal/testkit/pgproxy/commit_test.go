package pgproxy_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/stretchr/testify/require"

	"github.com/httplatch/httplatch/internal/testkit/pgproxy"
	"github.com/httplatch/httplatch/internal/testkit/pgtest"
	"github.com/httplatch/httplatch/lock/pgstore/internal/testkit/pgxtest"
)

const lockNotAvailable = "55P03"

// TestUnansweredCommitIsCertain: the session that wrote a receipt holds the lock of its row
// until its transaction has ended. So a row that can be locked shows the outcome of a COMMIT that
// got no answer. If the row cannot be locked, the session has to end first.
func TestUnansweredCommitIsCertain(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name      string
		fault     pgproxy.Fault
		gone      bool // the client closes its connection before it asks
		committed bool
		locked    bool // the first ask finds the row locked
	}{
		{"applied, reply lost", pgproxy.Fault{Action: pgproxy.LoseReply}, false, true, false},
		{"1 s late", pgproxy.Fault{Action: pgproxy.DelayRequest, Delay: time.Second}, false, false, true},
		{"1 s late, client gone", pgproxy.Fault{Action: pgproxy.DelayRequest, Delay: time.Second}, true, false, true},
		{"never arrives, client gone", pgproxy.Fault{Action: pgproxy.LoseRequest}, true, false, false},
		{"never arrives, server does not know", pgproxy.Fault{Action: pgproxy.Freeze}, true, false, true},
	} {
		for _, pooled := range []bool{false, true} {
			name := tt.name
			if pooled {
				name += ", PgBouncer"
			}
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				s := open(t, at("COMMIT", tt.fault))
				run(t, s.direct, "CREATE TABLE claims (key text PRIMARY KEY, receipt text); INSERT INTO claims VALUES ('k')")
				url := s.proxy.URL(s.db, "postgres")
				if pooled {
					url = pgtest.PgBouncer(t, s.proxy.Addr()).URL(s.db, "") + "&default_query_exec_mode=exec"
				}
				conn := pgxtest.Connect(t, url)
				pid := settle(t, conn)
				sent := time.Now()
				require.ErrorIs(t, impatiently(t, conn, "COMMIT"), context.DeadlineExceeded)
				if tt.gone {
					pgxtest.Leave(conn)
				}

				began := time.Now()
				committed, asks := ask(t, s.direct, pid)
				t.Logf("committed: %v, %d asks, %v", committed, asks, time.Since(began).Round(time.Millisecond))
				if tt.fault.Delay == 0 || time.Since(sent) < tt.fault.Delay { // always, unless the machine stops for a while
					require.Equal(t, tt.committed, committed)
					if tt.locked { // a busy server may need more than one to end a session
						require.Greater(t, asks, 1)
					}
				}
				s.proxy.Wait(t, tt.fault.Action, 1) // the late one meets a closed session
				want := 0
				if committed {
					want = 1
				}
				require.Equal(t, want, s.orders(t))
			})
		}
	}
}

// settle writes an order and its receipt, and returns the process of its session.
func settle(t *testing.T, conn *pgx.Conn) (pid int) {
	t.Helper()
	run(t, conn, "BEGIN")
	require.NoError(t, conn.QueryRow(t.Context(), "SELECT pg_backend_pid()").Scan(&pid))
	run(t, conn, "INSERT INTO orders VALUES (1)")
	run(t, conn, "UPDATE claims SET receipt = 'order 1' WHERE key = 'k'")
	return pid
}

// ask finds out whether the transaction of a session has committed.
func ask(t *testing.T, conn *pgx.Conn, pid int) (committed bool, asks int) {
	t.Helper()
	for asks = 1; asks < 10; asks++ {
		err := pgx.BeginFunc(t.Context(), conn, func(tx pgx.Tx) error {
			if _, err := tx.Exec(t.Context(), "SET LOCAL lock_timeout = '100ms'"); err != nil {
				return err //nolint:wrapcheck // for the test to judge
			}
			const receipt = "SELECT receipt IS NOT NULL FROM claims WHERE key = 'k' FOR UPDATE"
			return tx.QueryRow(t.Context(), receipt).Scan(&committed) //nolint:wrapcheck // the same
		})
		if err == nil {
			return committed, asks
		}
		var refused *pgconn.PgError
		require.True(t, errors.As(err, &refused) && refused.Code == lockNotAvailable, "%v", err)
		_, err = conn.Exec(t.Context(), "SELECT pg_terminate_backend($1)", pid)
		require.NoError(t, err)
	}
	t.Fatal("the row stays locked")
	return false, asks
}
