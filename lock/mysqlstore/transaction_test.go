package mysqlstore_test

import (
	"context"
	"database/sql"
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/httplatch/httplatch/lock"
	"github.com/httplatch/httplatch/lock/mysqlstore"
)

var errWork = errors.New("the work fails")

// statements returns work that executes statements, after an order and before another one, and
// ignores their errors.
func statements(all ...string) func(ctx context.Context) error {
	return func(ctx context.Context) error {
		if err := exec(ctx, insert, "first"); err != nil {
			return err
		}
		for _, statement := range all {
			_ = exec(ctx, statement)
		}
		_ = exec(ctx, insert, "second")
		return nil
	}
}

// The changes of work in its transaction are committed with its receipt, or not at all, and a
// repeat gets the same receipt.
func TestWhatWorkDoes(t *testing.T) {
	t.Parallel()
	both := []string{"first", "second"}
	for name, tt := range map[string]struct {
		work   func(ctx context.Context) error
		orders []string
		says   string // "": it was committed
	}{
		"two statements":         {statements(), both, ""},
		"nothing":                {func(context.Context) error { return nil }, nil, ""},
		"error":                  {func(ctx context.Context) error { return errors.Join(exec(ctx, insert, "x"), errWork) }, nil, "the work fails"},
		"failed statement":       {statements("INSERT INTO nowhere VALUES (1)"), both, ""},
		"savepoint":              {statements("SAVEPOINT s", "INSERT INTO orders (name) VALUES ('x')", "ROLLBACK TO SAVEPOINT s"), both, ""},
		"savepoint of its name":  {statements("SAVEPOINT latch_work"), both, ""},
		"COMMIT":                 {statements("COMMIT"), both, ""},
		"ROLLBACK":               {statements("ROLLBACK"), both, ""},
		"DDL":                    {statements("CREATE TABLE other (n INT)"), both, ""},
		"temporary table":        {statements("CREATE TEMPORARY TABLE t (n INT)", "DROP TEMPORARY TABLE t"), both, ""},
		"BEGIN":                  {statements("/* a */ BEGIN"), both, ""},
		"autocommit":             {statements("SET autocommit = 0", "SET SESSION autocommit = 1"), both, ""},
		"another database":       {statements("USE mysql", "INSERT INTO nowhere VALUES (1)", "USE information_schema"), []string{"first"}, ""},
		"settings":               {statements("SET sql_mode = 'ANSI,NO_BACKSLASH_ESCAPES'", "SET NAMES latin1", "SET time_zone = '-09:30'", "SET completion_type = 2"), both, ""},
		"isolation":              {statements("SELECT COUNT(*) FROM orders LOCK IN SHARE MODE"), both, ""},
		"procedure":              {statements("CALL harmless()"), both, ""},
		"procedure that commits": {statements("CALL commits()"), []string{"first"}, ""}, // the second one is refused
		"that commits, at last": {func(ctx context.Context) error {
			return errors.Join(exec(ctx, insert, "first"), exec(ctx, "CALL commits()"))
		}, []string{"first"}, ""},
		"that rolls back":  {statements("CALL rolls_back()"), nil, "it has ended before its work"},
		"and begins again": {statements("CALL begins_again()"), nil, "it has ended before its work"},
		"that rolls back, at last": {func(ctx context.Context) error {
			return errors.Join(exec(ctx, insert, "first"), exec(ctx, "CALL rolls_back()"))
		}, nil, "it has ended before its work"},
		"prepared COMMIT": {statements("PREPARE p FROM 'COMMIT'", "EXECUTE p"), []string{"first"}, ""},
		"duplicate key":   {statements("INSERT INTO orders (id, name) SELECT id, 'x' FROM orders"), both, ""},
		"read only":       {statements("SET SESSION TRANSACTION READ ONLY"), both, ""},
		"session killed": {func(ctx context.Context) error {
			return errors.Join(exec(ctx, insert, "first"), ignore(exec(ctx, "KILL CONNECTION_ID()")))
		}, nil, "the work's transaction was rolled back"},
		"context of a statement": {func(ctx context.Context) error {
			short, cancel := context.WithTimeout(ctx, 50*time.Millisecond)
			defer cancel()
			return errors.Join(exec(ctx, insert, "first"), ignore(exec(short, "DO SLEEP(5)")), ignore(exec(ctx, insert, "second")))
		}, nil, "its session has ended"},
		"rows left open": {func(ctx context.Context) error {
			tx, _ := mysqlstore.Tx(ctx)
			rows, err := tx.QueryContext(ctx, "SELECT name FROM orders") //nolint:sqlclosecheck,rowserrcheck // left open
			if err == nil {
				rows.Next()
			}
			return err
		}, nil, ""},
		"its Commit": {func(ctx context.Context) error {
			tx, _ := mysqlstore.Tx(ctx)
			err := exec(ctx, insert, "first")
			if tx.Commit() == nil {
				return errors.New("it was committed")
			}
			return err
		}, []string{"first"}, ""},
		"prepared statement": {func(ctx context.Context) error {
			tx, _ := mysqlstore.Tx(ctx)
			stmt, err := tx.PrepareContext(ctx, insert)
			if err != nil {
				return err
			}
			defer stmt.Close()
			for _, name := range both {
				_, err = stmt.ExecContext(ctx, name)
			}
			return err
		}, both, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := openShop(t)
			s.exec(t, "CREATE PROCEDURE harmless() DO 1")
			s.exec(t, "CREATE PROCEDURE commits() COMMIT")
			s.exec(t, "CREATE PROCEDURE rolls_back() ROLLBACK")
			s.exec(t, "CREATE PROCEDURE begins_again() BEGIN ROLLBACK; START TRANSACTION; END")
			l := s.locker(t)
			work := func(ctx context.Context) ([]byte, error) { return []byte("receipt"), tt.work(ctx) }
			receipt, replayed, err := l.Once(t.Context(), "k", nil, work)
			require.False(t, replayed)
			require.Equal(t, tt.orders, s.orders(t))
			if tt.says != "" {
				require.ErrorContains(t, err, tt.says)
				_, replayed, err = l.Once(t.Context(), "k", nil, order("next"))
				require.NoError(t, err)
				require.False(t, replayed)
				require.Equal(t, []string{"next"}, s.orders(t))
				return
			}
			require.NoError(t, err)
			require.Equal(t, "receipt", string(receipt))
			receipt, replayed, err = l.Once(t.Context(), "k", nil, work)
			require.NoError(t, err)
			require.True(t, replayed)
			require.Equal(t, "receipt", string(receipt))
			require.Equal(t, tt.orders, s.orders(t))
		})
	}
}

func ignore(error) error { return nil }

// A deadlock rolls back all of a transaction, and a server would commit its later statements at
// once. Work that goes on nevertheless leaves none of its rows.
func TestWorkThatIgnoresADeadlock(t *testing.T) {
	t.Parallel()
	for name, params := range map[string][]string{
		"default":             nil,
		"autocommit off":      {"autocommit=0"},
		"snapshot isolation":  {"innodb_snapshot_isolation=1"},
		"interpolated values": {"interpolateParams=true"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if name == "snapshot isolation" && !isMariaDB(t) {
				t.Skip("SKIPPED: MySQL has no innodb_snapshot_isolation")
			}
			s := openShop(t, params...)
			s.exec(t, "INSERT INTO orders (name) VALUES ('a'), ('b')")
			l := s.locker(t)
			var both, all sync.WaitGroup
			both.Add(2)
			results := make(chan error, 2)
			for _, names := range [][2]string{{"a", "b"}, {"b", "a"}} {
				all.Go(func() {
					_, _, err := l.Once(t.Context(), names[0], nil, func(ctx context.Context) ([]byte, error) {
						const byID = "UPDATE orders SET name = CONCAT(name, '+') WHERE id = ?"
						id := map[string]int{"a": 1, "b": 2}
						err := exec(ctx, byID, id[names[0]])
						both.Done()
						both.Wait()
						_ = exec(ctx, byID, id[names[1]])
						_ = exec(ctx, insert, "of "+names[0])
						return []byte("receipt"), err
					})
					results <- err
				})
			}
			all.Wait()
			first, second := <-results, <-results
			if first == nil {
				first, second = second, first
			}
			require.ErrorContains(t, first, "the server has rolled it back, after a deadlock")
			require.ErrorIs(t, first, lock.ErrUnavailable)
			require.NoError(t, second)
			require.Len(t, s.orders(t), 3, "a row of the winner")
		})
	}
}

func isMariaDB(tb testing.TB) bool {
	tb.Helper()
	db, err := sql.Open("mysql", database(tb))
	require.NoError(tb, err)
	defer db.Close()
	var version string
	require.NoError(tb, db.QueryRowContext(tb.Context(), "SELECT VERSION()").Scan(&version))
	return strings.Contains(version, "MariaDB")
}

// Without the savepoint, the rows after the end of the transaction are committed, and the others
// are not.
func TestTwinWithoutASavepoint(t *testing.T) {
	t.Parallel()
	s := openShop(t)
	s.exec(t, "CREATE PROCEDURE rolls_back() ROLLBACK")
	conn, err := s.db.Conn(t.Context())
	require.NoError(t, err)
	defer conn.Close()
	for _, statement := range []string{
		"START TRANSACTION", "INSERT INTO orders (name) VALUES ('first')", "CALL rolls_back()", "INSERT INTO orders (name) VALUES ('second')", "COMMIT",
	} {
		_, err := conn.ExecContext(t.Context(), statement)
		require.NoError(t, err)
	}
	require.Equal(t, []string{"second"}, s.orders(t), "half of the work")
}
