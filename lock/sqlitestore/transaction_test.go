package sqlitestore_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"modernc.org/sqlite"

	"github.com/httplatch/httplatch/internal/testkit/must"
	"github.com/httplatch/httplatch/internal/testkit/sqlshop"
	"github.com/httplatch/httplatch/lock"
	"github.com/httplatch/httplatch/lock/sqlitestore"
)

// While work has written to the database, all calls are answered: claims are in another file. One
// of the database itself would wait, as the twin does.
func TestWorkThatHasWrittenHoldsUpNoCall(t *testing.T) {
	t.Parallel()
	s := openShop(t)
	ctx, tx, own := s.begin(t, "a")
	_, err := own.ExecContext(ctx, insert, "a")
	require.NoError(t, err)

	impatient, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	_, err = s.store.DB().ExecContext(impatient, "INSERT INTO latch_entries VALUES ('k', 't', 1, '', '', 0, 0, NULL, 0, 0)")
	require.Error(t, err, "a claim that is a row of the database")

	ctx, cancel = context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	for _, key := range []string{"a", "b"} {
		c := lock.Claim{Token: "token of " + key, Attempt: 1, Lease: time.Minute, Linger: time.Minute}
		require.Equal(t, c.Token, must.Entry(t)(s.store.Claim(ctx, key, c)).Token)
		must.Yes(t)(s.store.Renew(ctx, key, c))
	}
	must.Yes(t)(s.store.Settle(ctx, "b", lock.Claim{Token: "token of b"}, []byte("receipt"), time.Minute))
	n := 0
	for _, err := range s.store.List(ctx) {
		require.NoError(t, err)
		n++
	}
	require.Equal(t, 2, n)
	require.NoError(t, s.store.Check(ctx))
	must.Yes(t)(tx.Settle(ctx, []byte("receipt"), time.Hour))
	require.Equal(t, []string{"a"}, s.Orders(t))
}

func TestStatementsThatEndTransactions(t *testing.T) {
	t.Parallel()
	const trigger = "CREATE TRIGGER t AFTER INSERT ON orders BEGIN UPDATE orders SET name = 'x'; DELETE FROM orders; END"
	for text, want := range map[string]bool{
		"COMMIT": true, "commit transaction": true, "End": true, "ROLLBACK": true, "rollback transaction;": true,
		"SELECT 1; COMMIT": true, "/* ; */ -- x\n COMMIT": true, "SELECT ';';COMMIT": true, trigger + "; COMMIT": true, trigger + "; END": true,
		"SELECT 'a''b;c'; ROLLBACK": true, "SELECT [;]; rollback": true, "SELECT \";\" ; END": true,
		"ROLLBACK TO a": false, "ROLLBACK TRANSACTION `to`": true, "ROLLBACK TRANSACTION TO SAVEPOINT a": false, "SAVEPOINT commit": false, "RELEASE a": false,
		"SELECT '; COMMIT'": false, "-- x; COMMIT": false, "/* ; COMMIT */ SELECT 1": false, "/* ; COMMIT": false, "SELECT CASE 1 WHEN 1 THEN 2 END": false,
		trigger: true, "": false, ";;": false, "SELECT `;COMMIT`": false,
		"SELECT ';COMMIT": false, "INSERT INTO commits VALUES (1)": false, "ENDE": false, "é; COMMITé": false,
	} {
		require.Equal(t, want, sqlitestore.Ends(text), text)
	}
}

// rolledBack is work with a statement that rolls back all of its transaction. SQLite would commit the
// next statement at once.
func rolledBack(statement func(ctx context.Context) error) func(context.Context, *sqlshop.Shop) error {
	return func(ctx context.Context, _ *sqlshop.Shop) error {
		if err := exec(ctx, insert, "before"); err != nil {
			return err
		}
		short, cancel := context.WithTimeout(ctx, 50*time.Millisecond)
		defer cancel()
		if statement(short) == nil || exec(ctx, insert, "after") == nil {
			return errors.New("it is committed at once")
		}
		return nil
	}
}

// Statements of work in one transaction, through package database/sql.
func TestWhatWorkDoes(t *testing.T) {
	t.Parallel()
	const many = "INSERT INTO orders WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 1000000000) SELECT hex(randomblob(500)) FROM n"
	sqlshop.TestWorks(t, func(t *testing.T) *sqlshop.Shop {
		t.Helper()
		s := openShop(t)
		s.DB.SetMaxOpenConns(1)
		s.exec(t, "PRAGMA foreign_keys = ON")
		return s.Shop
	}, map[string]sqlshop.Work{
		"a failed statement": {Do: sqlshop.Around("INSERT INTO orders VALUES (NULL)"), Rows: []string{"first", "second"}},
		"a constraint that is checked at COMMIT": {Do: sqlshop.Statements(
			"CREATE TABLE parts (of INTEGER REFERENCES wholes (id) DEFERRABLE INITIALLY DEFERRED)", "CREATE TABLE wholes (id INTEGER PRIMARY KEY)", "INSERT INTO parts VALUES (1)",
		), Says: "FOREIGN KEY constraint failed"},
		"interrupted": {Do: rolledBack(func(ctx context.Context) error { return exec(ctx, many) }), Says: "not applied", May: true},
		"interrupted with RETURNING": {Do: rolledBack(func(ctx context.Context) error {
			return tx(ctx).QueryRowContext(ctx, many+" RETURNING 1").Scan(new(int))
		}), Says: "not applied", May: true},
		"a constraint that rolls back": {Do: rolledBack(func(ctx context.Context) error {
			return exec(ctx, "INSERT OR ROLLBACK INTO orders VALUES (NULL)")
		}), Says: "not applied"},
		"a prepared query": {Do: func(ctx context.Context, _ *sqlshop.Shop) error {
			stmt, err := tx(ctx).PrepareContext(ctx, insert+" RETURNING name")
			if err != nil {
				return err
			}
			var got string
			return errors.Join(stmt.QueryRowContext(ctx, "one").Scan(&got), exec(ctx, insert, got), stmt.Close())
		}, Rows: []string{"one", "one"}},
		"rows that are left open": {Do: func(ctx context.Context, _ *sqlshop.Shop) error {
			if err := exec(ctx, insert, "tea"); err != nil {
				return err
			}
			rows, err := tx(ctx).QueryContext(ctx, "SELECT name FROM orders UNION ALL SELECT 'x'") //nolint:sqlclosecheck,rowserrcheck // left open
			if err != nil {
				return err
			}
			rows.Next()
			types, err := rows.ColumnTypes()
			if err == nil && types[0].Name() != "name" {
				err = errors.New(types[0].Name())
			}
			return err
		}, Rows: []string{"tea"}},
	})
}

// A BEGIN that was interrupted may have begun a transaction. The connection goes back into the pool
// without it.
func TestInterruptedBegin(t *testing.T) {
	t.Parallel()
	s := openShop(t)
	s.store.DB().SetMaxOpenConns(1)
	rolledBack := 0
	conn, err := s.store.DB().Conn(t.Context())
	require.NoError(t, err)
	require.NoError(t, conn.Raw(func(c any) error {
		c.(sqlite.HookRegisterer).RegisterRollbackHook(func() { rolledBack++ }) //nolint:forcetypeassert // the driver's
		return nil
	}))
	require.NoError(t, conn.Close())
	for tries, ended := 0, time.Now().Add(time.Minute); ; tries++ {
		ctx, tx, err := s.store.Begin(t.Context(), "k", "t")
		require.NoError(t, err)
		within, cancel := context.WithTimeout(ctx, time.Duration(tries%200)*time.Microsecond)
		before := rolledBack
		failed := exec(within, "SELECT 1") != nil
		had := rolledBack > before
		cancel()
		require.NoError(t, tx.Rollback(t.Context()))
		s.exec(t, "BEGIN; COMMIT")
		if failed && had {
			t.Logf("%d tries", tries)
			return
		}
		require.True(t, time.Now().Before(ended), "no BEGIN was interrupted")
	}
}

// The content of the file decides the outcome of a COMMIT that failed with an error of the disk. It
// does so permanently, because the question is a write: the log may still have the changes of the
// COMMIT, which a crash would bring back.
func TestOutcomeAfterAnErrorOfTheDisk(t *testing.T) {
	t.Parallel()
	s := openShop(t)
	there := connect(t, s.path)
	version := func() (n int) { // changes with each commit of another connection
		require.NoError(t, there.QueryRowContext(t.Context(), "PRAGMA data_version").Scan(&n))
		return n
	}
	for _, committed := range []bool{true, false} {
		key := fmt.Sprint(committed)
		ctx, tx, own := s.begin(t, key)
		must.Get(own.ExecContext(ctx, insert, key))(t)
		if committed {
			must.Yes(t)(tx.Settle(t.Context(), []byte("receipt"), time.Hour))
		} else {
			require.NoError(t, tx.Rollback(t.Context()))
		}
		sqlitestore.ForgetCommit(tx)
		before := version()
		for range 2 {
			require.Equal(t, committed, must.Get(tx.Outcome(t.Context()))(t))
			require.Greater(t, version(), before, "it has written nothing")
		}
		require.Equal(t, committed, must.Entry(t)(s.store.Get(t.Context(), key)).State == lock.Settled)
	}
	require.Equal(t, []string{"true"}, s.Orders(t))
}
