package latchtest

import (
	"slices"
	"testing"
	"time"

	"github.com/httplatch/httplatch/lock"
)

// TestStore checks that a store obeys every rule of [lock.Store] and, if it has them, of
// [lock.Inspector], [lock.Transactor], [lock.Amender], [lock.SetClaimer] and fences.
//
// Each rule is a parallel subtest, for which open is called once. The stores may be one
// and the same, or several over one server that others use, too: the keys are new every
// time, and their entries end within ten minutes. Close the stores with t.Cleanup.
//
// lease is the shortest lease that the store can time, such as 20 ms for a store that
// counts in milliseconds and a second for a store that counts in seconds. The subtests
// wait for leases to end in real time. A busy machine makes them slower, not wrong: no
// rule depends on a call that returns within a lease.
//
// TestStore interrupts calls, but cannot slow them down. Over a slow line, it sees more outcomes
// of interrupted calls. So run TestStore of a network store a second time, through a proxy that
// delays replies by a few milliseconds.
//
//nolint:tparallel // its caller decides whether it runs in parallel with other tests
func TestStore(t *testing.T, lease time.Duration, open func(t *testing.T) lock.Store) {
	t.Helper()
	if lease < time.Millisecond {
		t.Fatalf("latchtest: TestStore with a lease of %v: a lock.Claim has at least 1 ms", lease)
	}
	for _, r := range rules() {
		t.Run(r.name, func(t *testing.T) {
			t.Parallel()
			r.run(t, lease, open(t))
		})
	}
}

func rules() []rule {
	return slices.Concat(
		claimRules(),
		lapseRules(),
		takeoverRules(),
		handOverRules(),
		renewRules(),
		settleRules(),
		releaseRules(),
		byteRules(),
		raceRules(),
		fenceRules(),
		locksOnlyRules(),
		contextRules(),
		interruptRules(),
		inspectRules(),
		pageRules(),
		amendRules(),
		setRules(),
		transactionReceiptRules(),
		transactionCallRules(),
	)
}
