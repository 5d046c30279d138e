package pgstore_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/httplatch/httplatch/internal/testkit/pgtest"
	"github.com/httplatch/httplatch/lock"
	"github.com/httplatch/httplatch/lock/pgstore"
)

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
