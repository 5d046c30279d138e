package main_test

import (
	"net/http"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

// inFile returns the arguments of a desk whose orders are in a file of the test's own.
func inFile(t *testing.T, args ...string) []string {
	t.Helper()
	return append([]string{"-sqlite", filepath.Join(t.TempDir(), "desk.db"), "-budget", "10s", "-work", "0s"}, args...)
}

func TestOrdersInSQLite(t *testing.T) {
	t.Parallel()
	args := inFile(t)
	requireSharedOrders(t, startDesk(t, args...), startDesk(t, append(args, "-router", "stdlib")...))
}

func TestReplayInSQLite(t *testing.T) {
	t.Parallel()
	requireReplays(t, startDesk(t, inFile(t, "-cooldown", "1h", "-fencing")...))
}

func TestFailuresInATransactionOfSQLite(t *testing.T) {
	t.Parallel()
	requireFailuresRolledBack(t, func(t *testing.T) []string { t.Helper(); return inFile(t) })
}

// TestRestartOverSQLite: a desk that has ended and begins again knows its orders and answers.
func TestRestartOverSQLite(t *testing.T) {
	t.Parallel()
	args := inFile(t)
	first := startDesk(t, args...)
	got := first.order("42", "Idempotency-Key", "k")
	require.Equal(t, http.StatusCreated, got.status, got.body)
	first.signal()
	require.NoError(t, <-first.ended)

	second := startDesk(t, args...)
	again := second.order("42", "Idempotency-Key", "k")
	require.Equal(t, "true", again.header.Get("Idempotent-Replayed"))
	require.Equal(t, got.body, again.body)
	require.Len(t, second.orders("42"), 1)
}
