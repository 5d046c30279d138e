package mysqlstore_test

import (
	"bytes"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/httplatch/httplatch/internal/testkit/must"
	"github.com/httplatch/httplatch/internal/testkit/mysqltest"
	"github.com/httplatch/httplatch/internal/testkit/parallel"
	"github.com/httplatch/httplatch/internal/testkit/sqlproxy"
	"github.com/httplatch/httplatch/internal/testkit/sqlshop"
	"github.com/httplatch/httplatch/internal/testkit/testmain"
	"github.com/httplatch/httplatch/lock"
	"github.com/httplatch/httplatch/lock/mysqlstore"
)

// The changes of work in its transaction are committed with its receipt, or not at all, and a
// repeat gets the same receipt.
func TestWhatWorkDoes(t *testing.T) {
	t.Parallel()
	first, both := []string{"first"}, []string{"first", "second"}
	const ended = "it has ended before its work"
	at := func(last string) func(ctx context.Context, s *sqlshop.Shop) error {
		return func(ctx context.Context, _ *sqlshop.Shop) error {
			return errors.Join(exec(ctx, insert, "first"), exec(ctx, last))
		}
	}
	sqlshop.TestWorks(t, func(t *testing.T) *sqlshop.Shop {
		t.Helper()
		s := openShop(t)
		s.exec(t, "CREATE PROCEDURE harmless() DO 1")
		s.exec(t, "CREATE PROCEDURE commits() COMMIT")
		s.exec(t, "CREATE PROCEDURE rolls_back() ROLLBACK")
		s.exec(t, "CREATE PROCEDURE begins_again() BEGIN ROLLBACK; START TRANSACTION; END")
		s.exec(t, "CREATE PROCEDURE commits_and_begins() BEGIN COMMIT; START TRANSACTION; END")
		return s.Shop
	}, map[string]sqlshop.Work{
		"failed statement":         {Do: sqlshop.Around("INSERT INTO nowhere VALUES (1)"), Rows: both},
		"savepoint of its name":    {Do: sqlshop.Around("SAVEPOINT latch_work"), Rows: both},
		"COMMIT":                   {Do: sqlshop.Around("COMMIT"), Rows: both},
		"ROLLBACK":                 {Do: sqlshop.Around("ROLLBACK"), Rows: both},
		"DDL":                      {Do: sqlshop.Around("CREATE TABLE other (n INT)"), Rows: both},
		"temporary table":          {Do: sqlshop.Around("CREATE TEMPORARY TABLE t (n INT)", "DROP TEMPORARY TABLE t"), Rows: both},
		"BEGIN":                    {Do: sqlshop.Around("/* a */ BEGIN"), Rows: both},
		"autocommit":               {Do: sqlshop.Around("SET autocommit = 0", "SET SESSION autocommit = 1"), Rows: both},
		"another database":         {Do: sqlshop.Around("USE mysql", "INSERT INTO nowhere VALUES (1)", "USE information_schema"), Rows: first},
		"settings":                 {Do: sqlshop.Around("SET sql_mode = 'ANSI,NO_BACKSLASH_ESCAPES'", "SET NAMES latin1", "SET time_zone = '-09:30'", "SET completion_type = 2"), Rows: both},
		"isolation":                {Do: sqlshop.Around("SELECT COUNT(*) FROM orders LOCK IN SHARE MODE"), Rows: both},
		"procedure":                {Do: sqlshop.Around("CALL harmless()"), Rows: both},
		"procedure that commits":   {Do: sqlshop.Around("CALL commits()"), Rows: first}, // the second one is refused
		"that commits, at last":    {Do: at("CALL commits()"), Rows: first},
		"that rolls back":          {Do: sqlshop.Around("CALL rolls_back()"), Says: ended},
		"and begins again":         {Do: sqlshop.Around("CALL begins_again()"), Says: ended},
		"that rolls back, at last": {Do: at("CALL rolls_back()"), Says: ended},
		"prepared COMMIT":          {Do: sqlshop.Around("PREPARE p FROM 'COMMIT'", "EXECUTE p"), Rows: first},
		"duplicate key":            {Do: sqlshop.Around("INSERT INTO orders (id, name) SELECT id, 'x' FROM orders"), Rows: both},
		"read only":                {Do: sqlshop.Around("SET SESSION TRANSACTION READ ONLY"), Rows: both},
		"hidden COMMIT":            {Do: sqlshop.Around("UPDATE orders SET id = 2--1; COMMIT"), Rows: both},
		"session killed":           {Do: sqlshop.Around("KILL CONNECTION_ID()"), Says: "the work's transaction was rolled back", May: true},
		"context of a statement": {Do: func(ctx context.Context, s *sqlshop.Shop) error {
			first := exec(ctx, insert, "first")
			short, cancel := context.WithCancel(ctx)
			var watch sync.WaitGroup
			watch.Go(func() {
				defer cancel()
				for n := 0; n == 0 && short.Err() == nil; {
					_ = s.DB.QueryRowContext(short, "SELECT COUNT(*) FROM information_schema.processlist WHERE db = DATABASE() AND info = 'DO SLEEP(5)'").Scan(&n)
				}
			})
			slept := exec(short, "DO SLEEP(5)")
			cancel()
			watch.Wait()
			return errors.Join(first, ignore(slept), ignore(exec(ctx, insert, "second")))
		}, Says: "its session has ended", May: true},
		"that commits and begins": {Do: func(ctx context.Context, _ *sqlshop.Shop) error {
			err := errors.Join(exec(ctx, insert, "first"), exec(ctx, "CALL commits_and_begins()"))
			if exec(ctx, insert, "second") == nil {
				err = errors.New("it is in another transaction, which nothing commits")
			}
			return err
		}, Rows: first},
		"deadlock while rows are read": {Do: deadlock, Says: "after a deadlock", May: true},
		"rows left open": {Do: func(ctx context.Context, _ *sqlshop.Shop) error {
			rows, err := tx(ctx).QueryContext(ctx, "SELECT name FROM orders") //nolint:sqlclosecheck,rowserrcheck // left open
			if err == nil {
				rows.Next()
			}
			return err
		}},
	})
}

func ignore(error) error { return nil }

// deadlock makes the order "first", reads rows until a deadlock rolls it back, and tries to make another.
func deadlock(ctx context.Context, s *sqlshop.Shop) error {
	for _, statement := range []string{"CREATE TABLE stock (id INT PRIMARY KEY) ENGINE = InnoDB", "INSERT INTO stock VALUES (1), (2), (3)"} {
		if _, err := s.DB.ExecContext(ctx, statement); err != nil {
			return err
		}
	}
	other, err := s.DB.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer other.Rollback()                                                                                           //nolint:errcheck // its effect does not matter
	_, err = other.ExecContext(ctx, "INSERT INTO stock VALUES (11), (12), (13), (14), (15), (16), (17), (18), (19)") // the server rolls back the smaller one
	if err == nil {
		_, err = other.ExecContext(ctx, "DELETE FROM stock WHERE id = 2")
	}
	if err = errors.Join(err, exec(ctx, insert, "first"), exec(ctx, "DELETE FROM stock WHERE id = 3")); err != nil {
		return err
	}
	var waits sync.WaitGroup
	defer waits.Wait()
	waits.Go(func() { _, _ = other.ExecContext(ctx, "DELETE FROM stock WHERE id = 3") })
	rows, err := tx(ctx).QueryContext(ctx, "SELECT id FROM stock ORDER BY id FOR UPDATE")
	if err != nil {
		return err
	}
	defer rows.Close()
	for rows.Next() {
		_ = rows.Scan(new(int))
	}
	if rows.Err() == nil || exec(ctx, insert, "second") == nil {
		return errors.New("it is committed at once")
	}
	return nil
}

// Work has read before its entry is written: by a renewal, or by a note of lock.Commit. It is
// committed in any isolation.
func TestWorkThatReadsBeforeItIsRenewed(t *testing.T) {
	t.Parallel()
	for name, params := range map[string][]string{
		"default":            nil,
		"snapshot isolation": {"innodb_snapshot_isolation=1"},
	} {
		parallel.Run(t, name, func(t *testing.T) {
			if !isMariaDB(t) && name == "snapshot isolation" {
				t.Skip("SKIPPED: MySQL has no innodb_snapshot_isolation")
			}
			s := openShop(t, params...)
			ctx, tx := s.begin(t, "k")
			work, _ := mysqlstore.Tx(ctx)
			var n int
			require.NoError(t, work.QueryRowContext(ctx, "SELECT COUNT(*) FROM latch_entries").Scan(&n))
			must.Yes(t)(s.store.Renew(t.Context(), "k", lock.Claim{Token: "token of k", Lease: time.Hour, Linger: time.Hour}))
			require.NoError(t, exec(ctx, insert, "first"))
			must.Yes(t)(tx.Settle(t.Context(), []byte("receipt"), time.Hour))
			require.Equal(t, []string{"first"}, s.Orders(t))
		})
	}
}

// The claim is gone when the receipt is to be written, so the work is rolled back. A statement that may
// have ended the transaction has left a mark, whose removal changes a row, too.
func TestWorkWhoseClaimIsGone(t *testing.T) {
	t.Parallel()
	for _, statement := range []string{"DO 1", "CALL harmless()"} {
		parallel.Run(t, statement, func(t *testing.T) {
			s := openShop(t)
			s.exec(t, "CREATE PROCEDURE harmless() DO 1")
			ctx, tx := s.begin(t, "k")
			require.NoError(t, exec(ctx, insert, "first"))
			require.NoError(t, exec(ctx, statement))
			must.Yes(t)(s.store.Release(t.Context(), "k", lock.Claim{Token: "token of k"}))
			must.No(t)(tx.Settle(t.Context(), []byte("receipt"), time.Hour))
			require.Empty(t, s.Orders(t))
		})
	}
}

// The transaction has ended, and nothing shows how. It is not answered as a success or as a failure,
// and its work does not run again.
func TestWorkWithAnUnknownEnd(t *testing.T) {
	t.Parallel()
	s := openShop(t)
	l := sqlshop.Locker(t, s.store)
	receipt, replayed, err := l.Once(t.Context(), "k", nil, func(ctx context.Context) ([]byte, error) {
		return []byte("receipt"), errors.Join(exec(ctx, insert, "first"), exec(ctx, "RELEASE SAVEPOINT latch_work"))
	})
	require.ErrorIs(t, err, lock.ErrUnknown)
	require.NotErrorIs(t, err, lock.ErrNotApplied)
	require.ErrorContains(t, err, "it is not known whether it was committed")
	require.Eventually(t, func() bool {
		receipt, replayed, err = l.Once(t.Context(), "k", nil, order("second"))
		return err == nil
	}, 20*time.Second, 10*time.Millisecond)
	require.True(t, replayed)
	require.Empty(t, receipt)
}

// Work has committed its transaction by itself, and the store gets no answer when it asks for that, or
// when it leaves the receipt. The work does not run again.
func TestWorkThatCommitsWhileTheServerIsSilent(t *testing.T) {
	testmain.SkipIn(t, testmain.Quick, "waits for budgets in real time")
	t.Parallel()
	for _, struck := range []string{"DELETE FROM", "UPDATE"} {
		parallel.Run(t, struck, func(t *testing.T) {
			s, p := behind(t, mysqltest.Shared(t), nil)
			s.exec(t, "CREATE PROCEDURE commits() COMMIT")
			l := sqlshop.Locker(t, s.store, lock.WithBudget(time.Second))
			_, _, err := l.Once(t.Context(), "k", nil, func(ctx context.Context) ([]byte, error) {
				p.Decide(sqlproxy.First(struck, sqlproxy.Fault{Action: sqlproxy.CutRequest}))
				return []byte("receipt"), errors.Join(exec(ctx, insert, "first"), exec(ctx, "CALL commits()"))
			})
			require.ErrorIs(t, err, lock.ErrUnknown)
			require.Eventually(t, func() bool {
				_, replayed, err := l.Once(t.Context(), "k", nil, order("second"))
				return err == nil && replayed
			}, 20*time.Second, 10*time.Millisecond)
			require.Equal(t, []string{"first"}, s.Orders(t))
		})
	}
}

// A statement may have ended the transaction, and the store gets no answer when it asks for that. All is
// rolled back.
func TestWorkWhoseMarkIsNotRead(t *testing.T) {
	t.Parallel()
	s, p := behind(t, mysqltest.Shared(t), nil)
	s.exec(t, "CREATE PROCEDURE harmless() DO 1")
	l := sqlshop.Locker(t, s.store)
	_, _, err := l.Once(t.Context(), "k", nil, func(ctx context.Context) ([]byte, error) {
		p.Decide(sqlproxy.First("SELECT COUNT(*) > 0", sqlproxy.Fault{Action: sqlproxy.CutReply}))
		return []byte("receipt"), errors.Join(exec(ctx, insert, "first"), exec(ctx, "CALL harmless()"))
	})
	require.ErrorIs(t, err, lock.ErrNotApplied)
	require.ErrorIs(t, err, lock.ErrUnavailable)
	require.Equal(t, "second", must.Run(t)(l.Once(t.Context(), "k", nil, order("second"))))
	require.Equal(t, []string{"second"}, s.Orders(t))
}

// A receipt that the server does not take, since a packet has its size in hexadecimal digits at
// least, is left empty. The effect is committed, and its caller is answered.
func TestReceiptThatIsTooLarge(t *testing.T) {
	t.Parallel()
	server := mysqltest.Start(t, "max_allowed_packet=1M")
	const edge = 523_998 // the receipt alone fits, and not with the statements around it
	for name, params := range map[string][]string{"for the server": nil, "for the driver": {"maxAllowedPacket=500000"}} {
		s := shopOf(t, server, server.Addr(), params...)
		for _, inTx := range []bool{true, false} {
			for size, kept := range map[int]bool{200 << 10: true, edge: false, 600 << 10: false} {
				key, runs := fmt.Sprint(inTx, size), 0
				work := func(ctx context.Context) (receipt []byte, err error) {
					if runs++; inTx {
						err = exec(ctx, insert, key)
					}
					return bytes.Repeat([]byte("x"), size), err
				}
				l := sqlshop.Locker(t, s.store)
				if !inTx {
					l = lock.New(s.store, lock.WithLogger(sqlshop.Quiet), lock.WithBudget(5*time.Second))
				}
				receipt, _, err := l.Once(t.Context(), key, nil, work)
				require.NoError(t, err, "%s, %s", name, key)
				require.Len(t, receipt, size)
				require.Equal(t, kept, must.Replay(t)(l.Once(t.Context(), key, nil, work)) != "")
				require.Equal(t, 1, runs)
				require.NoError(t, l.Close(t.Context()))
			}
		}
		require.Len(t, s.Orders(t), 3)
	}
}

func isMariaDB(tb testing.TB) bool {
	tb.Helper()
	db := must.Get(sql.Open("mysql", database(tb)))(tb)
	defer db.Close()
	var version string
	require.NoError(tb, db.QueryRowContext(tb.Context(), "SELECT VERSION()").Scan(&version))
	return strings.Contains(version, "MariaDB")
}
