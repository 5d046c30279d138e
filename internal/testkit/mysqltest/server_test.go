package mysqltest_test

import (
	"net"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/httplatch/httplatch/internal/testkit/mysqltest"
	"github.com/httplatch/httplatch/internal/testkit/testmain"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(mysqltest.Main(m)) }

func TestUnavailable(t *testing.T) {
	testmain.SkipIn(t, testmain.Quick, "starts servers that are missing")
	t.Setenv("MYSQL_SERVER", "/no/such/program")
	testmain.RequireUnavailable(t, func(tb testing.TB) { mysqltest.Shared(tb) }, "MYSQL_SERVER", "apt-get install mariadb-server", "/no/such/program")
	testmain.RequireUnavailable(t, func(tb testing.TB) { mysqltest.Start(tb) }, "MYSQL_SERVER")
}

// A killed server has kept committed rows, and has the same address.
func TestRestart(t *testing.T) {
	t.Parallel()
	s := mysqltest.Start(t)
	db := s.Database(t)
	s.Exec(t, db, "CREATE TABLE kept (n INT); INSERT INTO kept VALUES (1)")
	addr := s.Addr()
	s.Kill()
	_, err := net.DialTimeout("tcp", addr, time.Second)
	require.Error(t, err)
	s.Restart(t)
	require.Equal(t, addr, s.Addr())
	s.Exec(t, db, "DROP TABLE kept")
}

func TestDatabasesAreApart(t *testing.T) {
	t.Parallel()
	s := mysqltest.Shared(t)
	a, b := s.Database(t), s.Database(t)
	require.NotEqual(t, a, b)
	s.Exec(t, a, "CREATE TABLE only (n INT)")
	s.Exec(t, b, "CREATE TABLE only (n INT)")
	require.Equal(t, "root@tcp("+s.Addr()+")/"+a+"?parseTime=true", s.DSN(a, "", "parseTime=true"))
}
