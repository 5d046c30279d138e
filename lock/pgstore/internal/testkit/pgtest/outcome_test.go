package pgtest_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/httplatch/httplatch/internal/testkit/pgtest"
	"github.com/httplatch/httplatch/internal/testkit/testmain"
)

func TestNoServerSkipsButFailsInCI(t *testing.T) {
	testmain.SkipIn(t, testmain.Quick, "starts servers that are missing")
	t.Setenv("POSTGRES_BIN", "/nonexistent/bin")
	t.Setenv("PGBOUNCER", "/nonexistent/pgbouncer")
	for name, tt := range map[string]struct {
		start   func(testing.TB)
		missing string
		remedy  string
	}{
		"Start":     {func(tb testing.TB) { pgtest.Start(tb) }, "/nonexistent/bin/initdb", "POSTGRES_BIN="},
		"Shared":    {func(tb testing.TB) { pgtest.Shared(tb) }, "/nonexistent/bin/initdb", "apt-get install postgresql"},
		"PgBouncer": {func(tb testing.TB) { pgtest.PgBouncer(tb, "127.0.0.1:1") }, "/nonexistent/pgbouncer", "PGBOUNCER="},
	} {
		t.Run(name, func(t *testing.T) {
			testmain.RequireUnavailable(t, tt.start, tt.missing, tt.remedy)
		})
	}
}

func TestBadUseFailsWithAReason(t *testing.T) {
	testmain.SkipIn(t, testmain.Short, "starts PostgreSQL")
	t.Parallel()
	c := pgtest.Shared(t)
	for name, tt := range map[string]struct {
		start func(testing.TB)
		want  string
	}{
		"impossible setting, with the server's own words": {
			func(tb testing.TB) { pgtest.Start(tb, "max_connections=none") }, "invalid value for parameter",
		},
		"port":                  {func(tb testing.TB) { pgtest.Start(tb, "port=5432") }, "chosen by Start"},
		"no value":              {func(tb testing.TB) { pgtest.Start(tb, "fsync") }, "name=value"},
		"statement":             {func(tb testing.TB) { c.Exec(tb, "postgres", "NOSUCH") }, "syntax error"},
		"database":              {func(tb testing.TB) { c.Exec(tb, "nosuch", "SELECT 1") }, "does not exist"},
		"setting of PgBouncer":  {func(tb testing.TB) { pgtest.PgBouncer(tb, c.Addr(), "pool_mode=none") }, "pool_mode"},
		"address for PgBouncer": {func(tb testing.TB) { pgtest.PgBouncer(tb, "nowhere") }, "missing port"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			require.Contains(t, testmain.Judge(t, tt.start).WhyFailed, tt.want)
		})
	}
}
