package main_test

import (
	"context"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/httplatch/httplatch/internal/testkit/pgtest"
)

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
		ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), 10*time.Second)
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
