package mysqlstore_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/httplatch/httplatch/internal/testkit/must"
	"github.com/httplatch/httplatch/internal/testkit/mysqltest"
	"github.com/httplatch/httplatch/lock"
)

// Ended rows are removed ten minutes after their end, also by claims.
func TestSweep(t *testing.T) {
	t.Parallel()
	s := openShop(t)
	age := "UPDATE latch_entries SET over_at = over_at - 1000000 * "
	for _, key := range []string{"old", "new"} {
		must.Entry(t)(s.store.Claim(t.Context(), key, lock.Claim{Token: "t", Attempt: 1, Lease: time.Millisecond}))
	}
	s.exec(t, age+"601 WHERE lock_key = 'old'")
	removed, err := s.store.Sweep(t.Context(), 10)
	require.NoError(t, err)
	require.Equal(t, 1, removed)
	s.exec(t, age+"601")
	for i := range 64 {
		must.Entry(t)(s.store.Claim(t.Context(), fmt.Sprint(i), lock.Claim{Token: "t", Attempt: 1, Lease: time.Hour}))
	}
	require.Eventually(t, func() bool {
		var n int
		err := s.DB.QueryRowContext(t.Context(), "SELECT COUNT(*) FROM latch_entries WHERE lock_key = 'new'").Scan(&n)
		return err == nil && n == 0
	}, 20*time.Second, 20*time.Millisecond)
}

// The clean-up of a claim does not pass again and again through the entries of an index that an old
// snapshot keeps there, such as a backup's, though their rows are gone.
func TestSweepUnderAnOldSnapshot(t *testing.T) {
	t.Parallel()
	const gone, sweeps = 20_000, 10
	if !isMariaDB(t) {
		t.Skip("SKIPPED: MySQL does not count these reads")
	}
	server := mysqltest.Start(t)
	s := shopOf(t, server, server.Addr())
	backup, err := s.DB.Conn(t.Context())
	require.NoError(t, err)
	defer backup.Close()
	_, err = backup.ExecContext(t.Context(), "START TRANSACTION WITH CONSISTENT SNAPSHOT")
	require.NoError(t, err)
	for i := 0; i < gone; i += 1000 {
		values := make([]string, 1000)
		for j := range values {
			values[j] = fmt.Sprintf("('%d', 't', 1, '', '', 0, 1, 'r', 1, %d)", i+j, i+j)
		}
		s.exec(t, "INSERT INTO latch_entries VALUES "+strings.Join(values, ","))
	}
	s.exec(t, "DELETE FROM latch_entries")
	reads := func(f func() error) int {
		read := func() (n int) {
			require.NoError(t, s.DB.QueryRowContext(t.Context(), "SHOW GLOBAL STATUS LIKE 'Innodb_buffer_pool_read_requests'").Scan(new(string), &n))
			return n
		}
		before := read()
		require.NoError(t, f())
		return read() - before
	}
	full := reads(func() error { return must.Err(s.store.Sweep(t.Context(), 128)) })
	claims := reads(func() (err error) {
		for i := range sweeps * 64 {
			_, err = s.store.Claim(t.Context(), fmt.Sprint(i), lock.Claim{Token: "t", Attempt: 1, Lease: time.Minute})
		}
		return err
	})
	t.Logf("pages: a sweep of all reads %d, %d claims with %d sweeps %d", full, sweeps*64, sweeps, claims)
	require.Greater(t, full, gone)
	require.Less(t, claims, 4*full)
}
