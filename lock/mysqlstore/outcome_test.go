package mysqlstore_test

import (
	"context"
	"database/sql"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/httplatch/httplatch/internal/testkit/must"
	"github.com/httplatch/httplatch/internal/testkit/mysqltest"
	"github.com/httplatch/httplatch/internal/testkit/sqlproxy"
	"github.com/httplatch/httplatch/internal/testkit/sqlshop"
	"github.com/httplatch/httplatch/internal/testkit/testmain"
	"github.com/httplatch/httplatch/lock"
)

// commit begins the COMMIT of work.
const commit = "COMMIT AND"

// late is the delay of a COMMIT that arrives late.
const late = 1500 * time.Millisecond

// behind returns a shop of a server whose store's statements have faults.
func behind(tb testing.TB, server *mysqltest.Server, decide sqlproxy.Decide) (*shop, *sqlproxy.Proxy) {
	tb.Helper()
	p := sqlproxy.MySQL(tb, server.Addr(), decide)
	return shopOf(tb, server, p.Addr()), p
}

// A COMMIT without an answer was executed or not, which the caller is answered, and a repeat
// confirms.
func TestCommitWithoutAnAnswer(t *testing.T) {
	testmain.SkipIn(t, testmain.Quick, "waits for budgets in real time")
	t.Parallel()
	sqlshop.TestCommits(t, func(x *sqlproxy.Exchange) bool { return x.Contains(commit) }, map[string]sqlshop.Commit{
		"the server ends after it": {Fault: sqlproxy.Fault{Action: sqlproxy.FailReply}, Executed: true},
	}, func(t *testing.T) (*sqlshop.Shop, *sqlproxy.Proxy) {
		t.Helper()
		s, p := behind(t, mysqltest.Shared(t), nil)
		return s.Shop, p
	})
}

// impatient returns a context that ends when a statement has a fault, the first that begins with text.
func impatient(t *testing.T, p *sqlproxy.Proxy, text string, fault sqlproxy.Fault) context.Context {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	strike := sqlproxy.First(text, fault)
	p.Decide(func(x *sqlproxy.Exchange) sqlproxy.Fault {
		f := strike(x)
		if f == fault {
			cancel()
		}
		return f
	})
	return ctx
}

// unanswered returns a shop, and a transaction whose COMMIT has a fault.
func unanswered(t *testing.T, server *mysqltest.Server, fault sqlproxy.Fault) (*shop, lock.Transaction) {
	t.Helper()
	s, p := behind(t, server, nil)
	ctx, tx := s.begin(t, "k")
	require.NoError(t, exec(ctx, insert, "first"))
	_, err := tx.Settle(impatient(t, p, commit, fault), []byte("receipt"), time.Hour)
	require.ErrorContains(t, err, "COMMIT was not answered")
	return s, tx
}

// Without the fence, a look at the receipt says that nothing was committed, and then the COMMIT
// arrives.
func TestTwinWithoutAFence(t *testing.T) {
	t.Parallel()
	s, tx := unanswered(t, mysqltest.Shared(t), sqlproxy.Fault{Action: sqlproxy.DelayRequest, Delay: late})
	e := must.Entry(t)(s.store.Get(t.Context(), "k"))
	require.Equal(t, lock.Held, e.State, "it looks as if nothing was committed")
	require.Eventually(t, func() bool { return len(s.Orders(t)) == 1 }, 20*time.Second, 50*time.Millisecond)
	must.Yes(t)(tx.Outcome(t.Context()))
}

// A server counts its sessions from its start. After a restart, the session with the number of one
// whose COMMIT has no answer is another's, and is not ended.
func TestOutcomeEndsNoOtherSession(t *testing.T) {
	t.Parallel()
	server := mysqltest.Start(t)
	s, tx := unanswered(t, server, sqlproxy.Fault{Action: sqlproxy.LoseRequest})
	var newest int64
	require.NoError(t, s.DB.QueryRowContext(t.Context(), "SELECT MAX(id) FROM information_schema.processlist").Scan(&newest))
	server.Restart(t)
	if !isMariaDB(t) {
		time.Sleep(2 * time.Second) // MySQL shows in seconds how long a session has been idle
	}
	others := dial(t, server.DSN(s.name, ""))
	var jobs []*sql.Tx
	for id := int64(0); id <= newest; {
		job := must.Get(others.BeginTx(t.Context(), nil))(t)
		require.NoError(t, job.QueryRowContext(t.Context(), "SELECT CONNECTION_ID()").Scan(&id))
		jobs = append(jobs, job)
	}
	committed, err := tx.Outcome(t.Context())
	require.NoError(t, err)
	require.False(t, committed)
	for _, job := range jobs {
		_, err := job.ExecContext(t.Context(), insert, "of a job")
		require.NoError(t, err, "the session was ended")
		require.NoError(t, job.Rollback())
	}
}

// A session that executes COMMIT waits for its replica, here in vain. It is not ended: the order
// would be visible, and on no other server.
func TestOutcomeEndsNoCommit(t *testing.T) {
	t.Parallel()
	if !isMariaDB(t) {
		t.Skip("SKIPPED: the settings are MariaDB's")
	}
	server := mysqltest.Start(t, mysqltest.Replicated(1, mysqltest.SemiSynchronous()...)...)
	s := shopOf(t, server, server.Addr())
	ctx, tx := s.begin(t, "k")
	require.NoError(t, exec(ctx, insert, "first"))
	s.exec(t, "SET GLOBAL rpl_semi_sync_master_enabled = ON")
	defer s.exec(t, "SET GLOBAL rpl_semi_sync_master_enabled = OFF")
	impatient, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	require.ErrorContains(t, must.Err(tx.Settle(impatient, []byte("receipt"), time.Hour)), "COMMIT was not answered")
	impatient, cancel = context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	require.Error(t, must.Err(tx.Outcome(impatient)))
	require.Empty(t, s.Orders(t))
	s.exec(t, "SET GLOBAL rpl_semi_sync_master_enabled = OFF")
	must.Yes(t)(tx.Outcome(t.Context()))
}

// The server ends a session of the store's own whose COMMIT never arrives, and with it the lock
// of its row.
func TestOwnCommitThatNeverArrives(t *testing.T) {
	t.Parallel()
	testmain.SkipIn(t, testmain.Quick|testmain.NewerServers, "waits for 30 s")
	s, p := behind(t, mysqltest.Shared(t), nil)
	claim := lock.Claim{Token: "t", Attempt: 1, Lease: time.Minute, Fenced: true}
	_, err := s.store.Claim(impatient(t, p, "COMMIT", sqlproxy.Fault{Action: sqlproxy.LoseRequest}), "k", claim)
	require.ErrorIs(t, err, context.Canceled)
	require.NotErrorIs(t, err, lock.ErrNotApplied)
	began := time.Now()
	require.Eventually(t, func() bool {
		_, err := s.store.Claim(t.Context(), "k", claim)
		return err == nil
	}, 60*time.Second, 100*time.Millisecond)
	t.Logf("the key was locked for %v", time.Since(began))
}

// dial returns a database that is closed with the test.
func dial(tb testing.TB, dsn string) *sql.DB {
	tb.Helper()
	db := must.Get(sql.Open("mysql", dsn))(tb)
	tb.Cleanup(func() { require.NoError(tb, db.Close()) })
	return db
}

// through replaces the address in the DSN of a server by another one.
func through(server *mysqltest.Server, dsn, addr string) string {
	return strings.Replace(dsn, server.Addr(), addr, 1)
}

// COMMITs wait for a replica, and here there is none. So a receipt is not returned. The twin reads
// the row, which the server shows.
func TestReceiptWaitsForTheReplica(t *testing.T) {
	t.Parallel()
	if !isMariaDB(t) {
		t.Skip("SKIPPED: the settings are MariaDB's")
	}
	server := mysqltest.Start(t, mysqltest.Replicated(1, mysqltest.SemiSynchronous()...)...)
	s := shopOf(t, server, server.Addr())
	_, tx := s.begin(t, "k")
	must.Yes(t)(tx.Settle(t.Context(), []byte("receipt"), time.Hour))
	s.exec(t, "SET GLOBAL rpl_semi_sync_master_enabled = ON")
	for name, ask := range map[string]func(ctx context.Context) (lock.Entry, error){
		"get": func(ctx context.Context) (lock.Entry, error) { return s.store.Get(ctx, "k") },
		"claim": func(ctx context.Context) (lock.Entry, error) {
			return s.store.Claim(ctx, "k", lock.Claim{Token: "another", Attempt: 1, Lease: time.Minute})
		},
	} {
		ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
		e, err := ask(ctx)
		cancel()
		require.Error(t, err, name)
		require.Equal(t, lock.Free, e.State, name)
	}
	var settled bool
	require.NoError(t, s.DB.QueryRowContext(t.Context(), "SELECT settled FROM latch_entries").Scan(&settled))
	require.True(t, settled)
	s.exec(t, "SET GLOBAL rpl_semi_sync_master_enabled = OFF")
	require.Equal(t, lock.Settled, must.Entry(t)(s.store.Get(t.Context(), "k")).State)
}

// The plugin of semi-synchronous replication goes, as in a failover to a server without it, and comes.
func TestPluginOfReplicationThatGoes(t *testing.T) {
	t.Parallel()
	if isMariaDB(t) {
		t.Skip("SKIPPED: MariaDB has it built in")
	}
	server := mysqltest.Start(t)
	server.Exec(t, "", "INSTALL PLUGIN rpl_semi_sync_source SONAME 'semisync_source.so'")
	s := shopOf(t, server, server.Addr())
	for range 2 {
		_, tx := s.begin(t, "k")
		must.Yes(t)(tx.Settle(t.Context(), []byte("receipt"), time.Hour))
		e := must.Entry(t)(s.store.Get(t.Context(), "k"))
		require.Equal(t, lock.Settled, e.State)
		must.Yes(t)(s.store.Forget(t.Context(), "k", e.Token))
		server.Exec(t, "", "UNINSTALL PLUGIN rpl_semi_sync_source")
		must.Entry(t)(s.store.Get(t.Context(), "k"))
		server.Exec(t, "", "INSTALL PLUGIN rpl_semi_sync_source SONAME 'semisync_source.so'")
	}
}
