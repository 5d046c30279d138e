// Package mysqltest starts real MariaDB or MySQL servers for tests: on a free port of
// 127.0.0.1, in a temporary directory, as an unprivileged user if the tests run as root. The
// servers end with the tests, in whatever way the tests end.
//
//	func TestMain(m *testing.M) { goleak.VerifyTestMain(mysqltest.Main(m)) }
//	...
//	s := mysqltest.Shared(t)         // one for all tests of the binary
//	dsn := s.DSN(s.Database(t), "")  // a new database, as root
//
//	s := mysqltest.Start(t, "max_connections=20") // one for this test: it may be killed, paused, restarted
//
// Without the programs tests are skipped with a reason; with CI=true they fail, so that a build
// machine never passes by skipping. The environment variable MYSQL_SERVER names a server, mariadbd
// or mysqld, to use instead of the first one on PATH. The programs in its directory are used, too.
//
// # Durability
//
// Nothing waits for the disk (innodb_flush_log_at_trx_commit=2, sync_binlog=0), which makes the
// tests fast: data that a process has written survives kill -9 of the process, because the
// operating system still has the data. A test of a machine's crash has to set both to 1.
//
// root has no password.
package mysqltest
