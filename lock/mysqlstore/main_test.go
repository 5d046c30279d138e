package mysqlstore_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/httplatch/httplatch/internal/testkit/mysqltest"
	"github.com/httplatch/httplatch/lock/mysqlstore"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(mysqltest.Main(m)) }

// open returns a store in a database, with its tables.
func open(tb testing.TB, dsn string, opts ...mysqlstore.Option) *mysqlstore.Store {
	tb.Helper()
	ctx, cancel := context.WithTimeout(tb.Context(), 30*time.Second)
	defer cancel()
	s, err := mysqlstore.Open(ctx, dsn, opts...)
	require.NoError(tb, err)
	tb.Cleanup(s.Close)
	return s
}

// database returns the DSN of a database of the test's own.
func database(tb testing.TB, params ...string) string {
	tb.Helper()
	return mysqltest.Shared(tb).DatabaseDSN(tb, params...)
}
