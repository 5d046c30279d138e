package main_test

import (
	"testing"

	"github.com/httplatch/httplatch/internal/testkit/mysqltest"
)

// inMySQL returns the arguments of a desk whose orders are in a database of the test's own.
func inMySQL(t *testing.T, args ...string) []string {
	t.Helper()
	return append([]string{"-mysql", mysqltest.Shared(t).DatabaseDSN(t), "-budget", "10s", "-work", "0s"}, args...)
}

func TestOrdersInMySQL(t *testing.T) {
	t.Parallel()
	args := inMySQL(t)
	requireSharedOrders(t, startDesk(t, args...), startDesk(t, append(args, "-router", "stdlib")...))
}

func TestReplayInMySQL(t *testing.T) {
	t.Parallel()
	requireReplays(t, startDesk(t, inMySQL(t, "-cooldown", "1h", "-fencing")...))
}

func TestFailuresInATransactionOfMySQL(t *testing.T) {
	t.Parallel()
	requireFailuresRolledBack(t, func(t *testing.T) []string { t.Helper(); return inMySQL(t) })
}
