package pgstore_test

import (
	"context"
	"fmt"
	"os"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	latchtest "github.com/httplatch/httplatch/httptest"
	"github.com/httplatch/httplatch/internal/testkit/must"
	"github.com/httplatch/httplatch/internal/testkit/pgtest"
	"github.com/httplatch/httplatch/internal/testkit/sqlproxy"
	"github.com/httplatch/httplatch/internal/testkit/sqlshop"
	"github.com/httplatch/httplatch/internal/testkit/testmain"
	"github.com/httplatch/httplatch/lock"
	"github.com/httplatch/httplatch/lock/pgstore"
)

// grantsOfThePage are the statements that docs/exactly-once.md says are enough, for a role.
func grantsOfThePage(t *testing.T, role string) []string {
	t.Helper()
	page := must.Get(os.ReadFile("../../docs/exactly-once.md"))(t)
	_, after, ok := strings.Cut(string(page), "needs no more than this:\n\n```sql\n")
	require.True(t, ok)
	block, _, ok := strings.Cut(after, "```")
	require.True(t, ok)
	require.Equal(t, strings.Count(block, ";"), strings.Count(block, " TO shop;"))
	return strings.Split(strings.TrimSpace(strings.ReplaceAll(block, " TO shop;", " TO "+role+";")), "\n")
}

var roles atomic.Int64

// service is a database with the store's table, orders, and a role that may use the orders.
type service struct {
	cluster  *pgtest.Cluster
	db, role string
}

func newService(t *testing.T) *service {
	t.Helper()
	s := &service{cluster: pgtest.Shared(t), role: fmt.Sprintf("service%d", roles.Add(1))}
	s.cluster.Exec(t, "postgres", "CREATE ROLE "+s.role+" LOGIN")
	t.Cleanup(func() { s.cluster.Exec(t, "postgres", "DROP ROLE "+s.role) })
	s.db = s.cluster.Database(t) // is dropped before, with its grants
	migrate(t, newStore(t, newPool(t, s.cluster.URL(s.db, "postgres"))))
	s.grant(t, "REVOKE CREATE ON SCHEMA public FROM PUBLIC", "CREATE TABLE orders (name text)", "GRANT SELECT, INSERT ON orders TO "+s.role)
	return s
}

func (s *service) grant(t *testing.T, statements ...string) {
	t.Helper()
	for _, sql := range statements {
		s.cluster.Exec(t, s.db, sql)
	}
}

// store returns the role's store, which has not migrated.
func (s *service) store(t *testing.T, addr string) *pgstore.Store {
	t.Helper()
	url := strings.Replace(s.cluster.URL(s.db, s.role), s.cluster.Addr(), addr, 1)
	store := pgstore.New(newPool(t, url))
	t.Cleanup(store.Close)
	return store
}

// The grants of the page are enough for all calls of a store, for work in transactions, and to end
// the session of a COMMIT that got no answer.
func TestPrivilegesOfThePageSuffice(t *testing.T) {
	testmain.SkipIn(t, testmain.Quick, "waits for budgets in real time")
	t.Parallel()
	s := newService(t)
	s.grant(t, grantsOfThePage(t, s.role)...)
	proxy := sqlproxy.Postgres(t, s.cluster.Addr(), nil)
	store := s.store(t, proxy.Addr())
	require.NoError(t, store.Check(t.Context()))
	latchtest.TestStore(t, shortLease, func(*testing.T) lock.Store { return store })
	must.Get(store.Sweep(t.Context(), 10))(t)
	_, _, err := store.Page(t.Context(), "", 10, nil)
	require.NoError(t, err)
	for _, err := range store.List(t.Context()) {
		require.NoError(t, err)
	}

	l := lock.New(store, lock.WithTransaction(), lock.WithLogger(sqlshop.Quiet), lock.WithBudget(5*time.Second))
	defer func() { require.NoError(t, l.Close(context.WithoutCancel(t.Context()))) }()
	require.Equal(t, "answered", must.Run(t)(l.Once(t.Context(), "answered", nil, order("answered"))))
	var lost atomic.Bool
	proxy.Decide(func(x *sqlproxy.Exchange) sqlproxy.Fault {
		if x.Begins("COMMIT") && lost.CompareAndSwap(false, true) {
			return sqlproxy.Fault{Action: sqlproxy.Freeze} // its session stays, until it is ended
		}
		return sqlproxy.Fault{}
	})
	began := time.Now()
	_, _, err = l.Once(t.Context(), "lost", nil, order("lost"))
	require.ErrorIs(t, err, lock.ErrNotApplied, "it is certain")
	t.Logf("%v", time.Since(began))
	require.True(t, lost.Load())
	must.Run(t)(l.Once(t.Context(), "lost", nil, order("again")))
}

// A role that lacks one of them is named, with the statement that grants it.
func TestCheckNamesThePrivilegeThatIsMissing(t *testing.T) {
	t.Parallel()
	s := newService(t)
	store := s.store(t, s.cluster.Addr())
	table, sequence := `"latch_entries"`, `"latch_entries_fence"`
	for _, missing := range []string{
		"SELECT ON " + table, "INSERT ON " + table, "UPDATE ON " + table, "DELETE ON " + table, "SELECT, DELETE ON " + table,
		"USAGE ON SEQUENCE " + sequence,
	} {
		s.grant(t, grantsOfThePage(t, s.role)...)
		require.NoError(t, store.Check(t.Context()))
		s.grant(t, "REVOKE "+missing+" FROM "+s.role)
		err := store.Check(t.Context())
		require.ErrorIs(t, err, lock.ErrDenied)
		grant := "GRANT " + missing + " TO " + s.role
		require.ErrorContains(t, err, "the role lacks privileges: "+grant)
		require.NotContains(t, err.Error(), ";", "it lacks nothing else")
		s.grant(t, grant) // as the sentence has it
		require.NoError(t, store.Check(t.Context()))
	}
	s.grant(t, "REVOKE USAGE ON SCHEMA public FROM PUBLIC")
	err := store.Check(t.Context())
	require.ErrorIs(t, err, lock.ErrDenied)
}

func TestCheckSaysWhatIsWrong(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		prepare string // DB is the database
		says    string
		serves  bool // claims all the same
	}{
		"not migrated":     {"DROP TABLE latch_entries", "the table is not there: call Migrate, or run Schema", false},
		"no sequence":      {"DROP SEQUENCE latch_entries_fence", "the table is not there: call Migrate, or run Schema", false},
		"a column missing": {"ALTER TABLE latch_entries DROP COLUMN sweep_at", "the table lacks a column", false},
		"another's table":  {"DROP TABLE latch_entries; CREATE TABLE latch_entries (id int)", "the table lacks a column", false},
		"an index more":    {"CREATE INDEX ON latch_entries (owner)", "", true},
		"an old server": {
			"CREATE FUNCTION current_setting(text) RETURNS text LANGUAGE sql AS $$SELECT '120022'$$; ALTER DATABASE DB SET search_path = public, pg_catalog",
			"the server is PostgreSQL 12: it has to be 13 or later", true,
		},
		"a standby": {
			"CREATE FUNCTION pg_is_in_recovery() RETURNS bool LANGUAGE sql AS 'SELECT true'; ALTER DATABASE DB SET search_path = public, pg_catalog",
			"the server is a standby", true,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := pgtest.Shared(t)
			db := c.Database(t)
			migrate(t, newStore(t, newPool(t, c.URL(db, "postgres"))))
			c.Exec(t, db, strings.ReplaceAll(tt.prepare, "DB", db))
			store := pgstore.New(newPool(t, c.URL(db, "postgres")))
			t.Cleanup(store.Close)
			err := store.Check(t.Context())
			if tt.says == "" {
				require.NoError(t, err)
			} else {
				require.ErrorIs(t, err, lock.ErrDenied)
				require.ErrorContains(t, err, tt.says)
			}
			_, err = store.Claim(t.Context(), "k", lock.Claim{Token: "t", Attempt: 1, Lease: time.Minute, Fenced: true})
			if tt.serves {
				require.NoError(t, err)
			} else {
				require.ErrorIs(t, err, lock.ErrNotApplied)
				require.ErrorIs(t, err, lock.ErrDenied)
			}
		})
	}
}

func TestCheckOfAServerThatIsNotThere(t *testing.T) {
	t.Parallel()
	const nowhere = "postgres://nobody:secret@127.0.0.1:1/none?sslmode=disable"
	store := pgstore.New(newPool(t, nowhere))
	t.Cleanup(store.Close)
	err := store.Check(t.Context())
	require.ErrorContains(t, err, "pgstore: the server cannot be reached")
	require.ErrorContains(t, err, "refused")
	require.NotContains(t, err.Error(), "secret")
	require.ErrorContains(t, store.Migrate(t.Context()), "cannot be reached")
	require.ErrorContains(t, must.Err(pgstore.Open(t.Context(), nowhere)), "cannot be reached")
}

// A failure has the class of its cause, under the name that it has over Redis.
func TestFailuresHaveTheirClass(t *testing.T) {
	t.Parallel()
	cluster := pgtest.Start(t)
	db := cluster.Database(t)
	url := cluster.URL(db, "postgres")
	s := newStore(t, newPool(t, url))
	cluster.Exec(t, db, "DROP TABLE latch_entries")
	classOf := func() string {
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_, err := s.Claim(ctx, "user=42", lock.Claim{Token: "t", Attempt: 1, Lease: time.Second})
		return lock.Class(err)
	}
	require.Equal(t, "42P01", classOf(), "the table is not there")
	require.Equal(t, "42P01", lock.Class(s.Check(t.Context())))
	migrate(t, s)
	require.Empty(t, classOf())

	cluster.Pause()
	require.Equal(t, "silent", classOf())
	cluster.Resume()
	cluster.Kill()
	require.Eventually(t, func() bool { return classOf() == "dial" }, 10*time.Second, 10*time.Millisecond)
	_, err := pgstore.Open(t.Context(), url)
	require.Equal(t, "dial", lock.Class(err))
}
