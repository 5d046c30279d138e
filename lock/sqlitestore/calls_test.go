package sqlitestore_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/httplatch/httplatch/internal/testkit/must"
	"github.com/httplatch/httplatch/internal/testkit/sqlshop"
	"github.com/httplatch/httplatch/lock"
	"github.com/httplatch/httplatch/lock/sqlitestore"
)

// count returns the number of rows in a table of a file.
func count(tb testing.TB, path string) (n int) {
	tb.Helper()
	require.NoError(tb, connect(tb, path).QueryRowContext(tb.Context(), "SELECT count(*) FROM latch_entries").Scan(&n))
	return n
}

// Rows that have ended are removed from both files, as calls come.
func TestEndedRowsAreRemoved(t *testing.T) {
	t.Parallel()
	s := openShop(t)
	l := sqlshop.Locker(t, s.store, lock.WithKeep(time.Millisecond))
	const orders = 40
	for i := range orders {
		must.Run(t)(l.Once(t.Context(), fmt.Sprint(i), nil, s.Order(fmt.Sprint(i))))
		must.No(t)(s.store.Settle(t.Context(), fmt.Sprint("lock ", i), lock.Claim{Token: "t"}, nil, time.Second))
		sqlshop.Claim(t, s.store, fmt.Sprint("lock ", i), "t")
	}
	require.Equal(t, orders, count(t, s.path))
	const age = "UPDATE latch_entries SET ends_at = 0, over_at = 0"
	for _, path := range []string{s.path, s.path + "-latch"} {
		run(t, connect(t, path), age)
	}
	for i := range 2 * orders {
		must.Run(t)(l.Once(t.Context(), fmt.Sprint("new ", i), nil, s.Order("new")))
	}
	require.Less(t, count(t, s.path), 2*orders+1)
	require.Zero(t, count(t, s.path+"-latch"))
	require.Len(t, s.Orders(t), 3*orders)
}

// The entries of both files are listed in pages, a key once.
func TestEntriesOfBothFiles(t *testing.T) {
	t.Parallel()
	s := openShop(t)
	l := sqlshop.Locker(t, s.store)
	want := make(map[string]lock.State)
	for i := range 9 {
		must.Run(t)(l.Once(t.Context(), fmt.Sprint(i), nil, s.Order(fmt.Sprint(i))))
	}
	// A process that died between its two commits has left both a claim and its receipt. Another
	// receipt has ended while its key is claimed again.
	there := connect(t, s.path+"-latch")
	run(t, there, "ATTACH ? AS shop", s.path)
	run(t, there, "INSERT INTO main.latch_entries SELECT key, token, 1, NULL, NULL, 0, 0, NULL, ends_at, ends_at FROM shop.latch_entries")
	run(t, there, "UPDATE shop.latch_entries SET ends_at = 0, over_at = 0 WHERE key = (SELECT min(key) FROM shop.latch_entries)")
	for i := range 3 {
		sqlshop.Claim(t, s.store, fmt.Sprint("lock ", i), "t")
	}
	for e, err := range s.store.List(t.Context()) {
		require.NoError(t, err)
		require.NotContains(t, want, e.Key)
		want[e.Key] = e.State
		require.Equal(t, e.State == lock.Settled, e.Receipt != nil)
	}
	require.Len(t, want, 12)
	held := 0
	for _, state := range want {
		if state == lock.Held {
			held++
		}
	}
	require.Equal(t, 4, held)
	for limit := range 6 {
		seen := make(map[string]lock.State)
		for cursor, more := "", true; more; more = cursor != "" {
			page, next, err := s.store.Page(t.Context(), cursor, limit, nil)
			require.NoError(t, err)
			for _, e := range page {
				require.NotContains(t, seen, e.Key)
				require.Nil(t, e.Receipt)
				seen[e.Key] = e.State
			}
			cursor = next
		}
		require.Equal(t, want, seen)
	}
	_, _, err := s.store.Page(t.Context(), "no cursor", 1, nil)
	require.ErrorIs(t, err, lock.ErrNotApplied)
}

// An operator frees a receipt of a transaction, though another process writes to the database
// all the time.
func TestForgetWhileOthersWrite(t *testing.T) {
	t.Parallel()
	s := openShop(t)
	l := sqlshop.Locker(t, s.store)
	_, _, err := l.Once(t.Context(), "k", nil, s.Order("tea"))
	require.NoError(t, err)
	there := connect(t, s.path)
	run(t, there, "BEGIN IMMEDIATE")
	e := must.Entry(t)(s.store.Get(t.Context(), storeKey(t, s.store)))
	require.Equal(t, lock.Settled, e.State)
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	require.ErrorIs(t, must.Err(s.store.Forget(ctx, e.Key, e.Token)), lock.ErrNotApplied)
	timer := time.AfterFunc(50*time.Millisecond, func() { _, _ = there.ExecContext(t.Context(), "ROLLBACK") })
	defer timer.Stop()
	must.No(t)(s.store.Forget(t.Context(), e.Key, "another"))
	must.Yes(t)(s.store.Forget(t.Context(), e.Key, e.Token))
	must.Run(t)(l.Once(t.Context(), "k", nil, s.Order("coffee")))
}

// storeKey returns the key of the one entry.
func storeKey(tb testing.TB, s *sqlitestore.Store) string {
	tb.Helper()
	page, _, err := s.Page(tb.Context(), "", 10, nil)
	require.NoError(tb, err)
	require.Len(tb, page, 1)
	return page[0].Key
}

// Calls that come together share a transaction, and calls that are taken back have no effect.
func TestCallsThatWaitInLine(t *testing.T) {
	t.Parallel()
	s := openShop(t)
	sqlshop.Claim(t, s.store, "first", "t") // opens the files
	there := connect(t, s.path+"-latch")
	run(t, there, "BEGIN IMMEDIATE")
	impatient, cancel := context.WithCancel(t.Context())
	var calls sync.WaitGroup
	for i := range 40 {
		calls.Go(func() {
			ctx, linger := t.Context(), time.Duration(0)
			if i%2 == 1 {
				ctx = impatient
			}
			if i%4 < 2 {
				linger = time.Minute
			}
			_, err := s.store.Claim(ctx, fmt.Sprint(i), lock.Claim{Token: "t", Attempt: 1, Lease: time.Minute, Linger: linger})
			switch {
			case i%2 == 0 && err != nil:
				t.Errorf("%d: %v", i, err)
			case i%2 == 1 && (!errors.Is(err, lock.ErrNotApplied) || lock.Class(err) != "cancelled"):
				t.Errorf("%d: %v, and it was taken back", i, err)
			}
		})
	}
	time.Sleep(100 * time.Millisecond) // they wait
	cancel()
	time.Sleep(50 * time.Millisecond)
	run(t, there, "ROLLBACK")
	calls.Wait()
	for i := range 40 {
		require.Equal(t, i%2 == 0, must.Entry(t)(s.store.Get(t.Context(), fmt.Sprint(i))).State == lock.Held, i)
	}
}

// A call that promises it is on disk before it is answered, alone, and among others that share its
// transaction.
func TestCallsThatWaitForTheDisk(t *testing.T) {
	t.Parallel()
	s := openShop(t)
	var mode int
	require.NoError(t, s.store.DB().QueryRowContext(t.Context(), "PRAGMA synchronous").Scan(&mode))
	require.Equal(t, 2, mode, "of receipts in transactions")
	c := lock.Claim{Token: "t", Attempt: 1, Lease: time.Minute}
	lingering := c
	lingering.Linger = time.Minute
	for _, tt := range []struct {
		name string
		disk bool
		call func(ctx context.Context) error
	}{
		{"claim", false, func(ctx context.Context) error { _, err := s.store.Claim(ctx, "k", c); return err }},
		{"claim that lingers", true, func(ctx context.Context) error { _, err := s.store.Claim(ctx, "l", lingering); return err }},
		{"renewal", false, func(ctx context.Context) error { _, err := s.store.Renew(ctx, "k", c); return err }},
		{"renewal that lingers", true, func(ctx context.Context) error { _, err := s.store.Renew(ctx, "k", lingering); return err }},
		{"get", false, func(ctx context.Context) error { _, err := s.store.Get(ctx, "k"); return err }},
		{"receipt", true, func(ctx context.Context) error {
			return must.Err(s.store.Settle(ctx, "k", c, []byte("1"), time.Minute))
		}},
		{"release", false, func(ctx context.Context) error { _, err := s.store.Release(ctx, "l", c); return err }},
		{"amended receipt", true, func(ctx context.Context) error {
			return must.Err(s.store.Amend(ctx, "k", "t", []byte("1"), []byte("2")))
		}},
		{"get again", false, func(ctx context.Context) error { _, err := s.store.Get(ctx, "k"); return err }},
		{"forget", true, func(ctx context.Context) error { _, err := s.store.Forget(ctx, "k", "t"); return err }},
	} {
		require.NoError(t, tt.call(t.Context()), tt.name)
		require.Equal(t, tt.disk, must.Get(s.store.Waited(t.Context()))(t), tt.name)
	}
	var all sync.WaitGroup
	for i := range 8 {
		all.Go(func() {
			for range 100 {
				durable := i == 0
				waits, err := s.store.Waits(t.Context(), durable)
				if err != nil || durable && !waits {
					t.Errorf("waits %v, %v", waits, err)
				}
			}
		})
	}
	all.Wait()
}

func TestClosedStore(t *testing.T) {
	t.Parallel()
	sqlshop.TestClosed(t, open(t, file(t)))
}

// Many processes migrate one new file at once.
func TestManyMigrateAtOnce(t *testing.T) {
	t.Parallel()
	path := file(t)
	sqlshop.TestMigrations(t, func(t *testing.T) sqlshop.Store {
		t.Helper()
		db := must.Get(sql.Open("sqlite", path))(t)
		s := sqlitestore.New(db)
		t.Cleanup(func() { s.Close(); require.NoError(t, db.Close()) })
		return s
	})
	require.Equal(t, 8, count(t, path+"-latch"))
}

// After an error the files are opened anew, while work has the only connection of the pool.
func TestFilesAreOpenedAnew(t *testing.T) {
	t.Parallel()
	s := openShop(t)
	s.store.DB().SetMaxOpenConns(1)
	ctx, tx, own := s.begin(t, "k")
	_, err := own.ExecContext(ctx, insert, "tea")
	require.NoError(t, err)
	there := connect(t, s.path+"-latch")
	run(t, there, "ALTER TABLE latch_entries RENAME TO other")
	require.ErrorIs(t, must.Err(s.store.Get(t.Context(), "k")), lock.ErrNotApplied)
	run(t, there, "DROP TABLE IF EXISTS latch_entries; ALTER TABLE other RENAME TO latch_entries")
	must.Yes(t)(tx.Settle(t.Context(), []byte("receipt"), time.Hour))
	require.NoError(t, tx.Rollback(t.Context()))
	s.store.DB().SetMaxOpenConns(0)
	require.Equal(t, []string{"tea"}, s.Orders(t))
}
