// Package pgtest starts real PostgreSQL servers, and PgBouncer in front of them,
// for tests: on a free port of 127.0.0.1, in a temporary directory, as an
// unprivileged user if the tests run as root. The servers end with the tests, in
// whatever way the tests end.
//
//	func TestMain(m *testing.M) { goleak.VerifyTestMain(pgtest.Main(m)) }
//	...
//	c := pgtest.Shared(t)                  // one for all tests of the binary
//	url := c.URL(c.Database(t), "")        // a fresh database, as superuser
//
//	c := pgtest.Start(t, "max_connections=20") // one for this test: it may be killed, paused, restarted
//	b := pgtest.PgBouncer(t, c.Addr())         // in transaction mode
//
// Without the programs tests are skipped with a reason; with CI=true they fail,
// so that a build machine never passes by skipping. The environment variables
// POSTGRES_BIN (the directory of initdb and postgres) and PGBOUNCER (the program)
// name the ones to use instead.
//
// # Durability
//
// fsync is off, which makes the tests fast and does not falsify them: data that
// a process has written survives kill -9 of the process, because the operating
// system still has the data. Only data that was not written yet is lost, such as
// commits under synchronous_commit=off. A test of a machine's crash has to set
// "fsync=on" and "full_page_writes=on".
//
// Every client may connect as every role ("trust"): tests of rights use roles,
// and not passwords.
package pgtest
