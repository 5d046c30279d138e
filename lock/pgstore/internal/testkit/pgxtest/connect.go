// Package pgxtest connects the tests of this module to databases.
package pgxtest

import (
	"context"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/httplatch/httplatch/internal/testkit/process"
)

// Connect returns a connection to the database at url, which is closed when tb ends. It waits until
// pgx has finished its background work on the connection.
func Connect(tb testing.TB, url string) *pgx.Conn {
	tb.Helper()
	ctx, cancel := context.WithTimeout(tb.Context(), process.Patience)
	defer cancel()
	conn, err := pgx.Connect(ctx, url)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { Leave(conn) })
	return conn
}

// Leave closes a connection, and returns when it is closed. After a timeout, pgx
// waits for 15 seconds for the server to close the connection: Leave ends this
// wait.
func Leave(conn *pgx.Conn) {
	ctx, cancel := context.WithTimeout(context.Background(), process.Patience)
	defer cancel()
	if conn.IsClosed() {
		_ = conn.PgConn().Conn().Close()
	}
	_ = conn.Close(ctx)
	<-conn.PgConn().CleanupDone()
}
