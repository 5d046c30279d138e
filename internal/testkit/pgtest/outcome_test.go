package pgtest_test

import (
	"testing"

	"go.uber.org/goleak"

	"github.com/httplatch/httplatch/internal/testkit/pgtest"
	"github.com/httplatch/httplatch/internal/testkit/testmain"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(pgtest.Main(m)) }

func TestNoServerSkipsButFailsInCI(t *testing.T) {
	testmain.SkipIn(t, testmain.Quick, "starts servers that are missing")
	t.Setenv("POSTGRES_BIN", "/nonexistent/bin")
	t.Setenv("PGBOUNCER", "/nonexistent/pgbouncer")
	start, shared := func(tb testing.TB) { pgtest.Start(tb) }, func(tb testing.TB) { pgtest.Shared(tb) }
	testmain.RequireUnavailable(t, start, "/nonexistent/bin/initdb", "POSTGRES_BIN=")
	testmain.RequireUnavailable(t, shared, "/nonexistent/bin/initdb", "apt-get install postgresql")
	testmain.RequireUnavailable(t, func(tb testing.TB) { pgtest.PgBouncer(tb, "127.0.0.1:1") }, "/nonexistent/pgbouncer", "PGBOUNCER=")
}
