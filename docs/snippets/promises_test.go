package snippets_test

import (
	"fmt"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/httplatch/httplatch/internal/testkit/must"
)

// check is a fault, what must hold during it, and the tests of that: a directory, and its tests.
// With broken, the promise cannot hold, and the tests show what happens instead.
type check struct {
	promise, fault, holds, dir, tests string
}

const broken = "cannot hold: "

func checks() []check {
	return []check{
		{"one-holder", "two clicks within one round trip", "one holder, and no token in use is treated as abandoned", "lock", "TestDoubleClickInsideOneRoundTrip"},
		{"one-holder", "callers of six Lockers under 30 kinds of faults of Redis and its network", "every promise, at every moment", "internal/faults", "TestCampaign TestCampaignCatches"},
		{"one-holder", "random work on keys, sets, permits and tickets of several Lockers in virtual time, callers that leave, Lockers that close", "every promise, and no key and no permit has two holders", "lock", "TestStress TestStressCatches"},
		{"one-holder", "recorded calls of many clients under faults, over Redis and PostgreSQL", "an order of the calls explains their results", "internal/history", "TestHistories TestHistoriesOverPostgres"},
		{"one-holder", "a store with a planted bug", "the histories find it", "internal/history", "TestPlantedBugsAreFound TestPlantedBugsAreFoundOverPostgres"},
		{"one-holder", "claim, loss, late arrival, clean-up, takeover and expiry of two clients, in every order", "the invariants hold in every state, and every variant without a rule breaks", "internal/model", "TestModel"},
		{"one-holder", "a store that breaks a rule", "`latchtest.TestStore` finds it", "httptest", "TestRulesFailOnBrokenStores"},
		{"one-holder", "an append-only file with `appendfsync always`, and `kill -9`", "leases and receipts survive", "internal/faults", "TestCampaign"},
		{"one-holder", "slots of a Cluster move; a planned failover; a master is killed after it has replicated", "no caller is refused except during the failover, and leases survive", "internal/faults", "TestCluster TestSentinelFailover"},
		{"one-holder", "every subset of the nodes of a quorum is down, slow or loses replies", "granted exactly when a majority answered in time", "lock/quorum", "TestEverySubset TestEverySubsetUnderALocker"},
		{"one-holder", "a node of a quorum restarts empty", "the next renewal restores the entry", "lock/quorum", "TestRenewalBringsTheEntryBack"},
		{"one-holder", "a release that a node of a quorum did not confirm may land after the next claim", "that node has no vote", "lock/quorum", "TestDoesNotCountAVoteThatMayBeTakenBack"},
		{"one-holder", "seeded storms over a quorum", "the same, and a quorum that accepts a minority is caught", "lock/quorum", "TestStress"},
		{"one-holder", "a cool-down begins with some nodes of a quorum down, then others are down", "it refuses until it is over, and no longer", "lock/quorum", "TestCoolDownWhicheverNodesAreDown"},
		{"one-holder", "a set of keys behind a proxy that shares keys among servers", broken + "two holders, and one with `WithoutPluralClaims`", "lock/redisstore", "TestSetBehindAProxyThatSharesKeys"},
		{"one-holder", "a holder is paused for longer than its lease", broken + "its context has ended, its fenced write is refused, its unfenced write wins", "internal/faults", "TestPausedHolder"},
		{"one-holder", "`kill -9` without persistence; a server evicts a lock; the tail of the append-only file is lost", broken + "a second holder; the first is notified, and its fence is lower", "internal/faults", "TestServerForgetsALock TestServerLosesTheTailOfItsFile"},
		{"one-holder", "a replica is promoted without the write", broken + "the same", "internal/faults", "TestServerPromotesAReplica"},
		{"one-holder", "the server's clock jumps ahead by two minutes", broken + "the same, and the fence grows", "internal/faults", "TestClockJumpsForward"},
		{"one-holder", "the server's clock jumps back by an hour, and its last fence is forgotten", broken + "fences can repeat", "internal/faults", "TestClockBackTakesFencesBack"},
		{"one-holder", "two nodes of three of a quorum restart empty", broken + "a second holder", "lock/quorum", "TestTwoRestartsMakeTwoHolders"},
		{"own-release", "an entry of 64 KiB or more is taken over, released, settled or gone between two commands", "it is settled under its own token, or left unchanged", "lock/redisstore", "TestLargeReceiptMeetsAnotherEntry TestLargeReceiptWithoutTransactions TestLargeReceiptWithoutAnAnswer"},
		{"own-release", "a settle arrives after a takeover", "the entry of the successor is unchanged", "lock", "TestLateSettleAfterTakeover"},
		{"no-orphan", "a reply to a claim or a release is lost, or every reply for 2 s", "no caller is locked out, no false `409`", "internal/faults", "TestIncident TestNaiveLockFailsTheIncident"},
		{"no-orphan", "a claim is held back, and delivered when its caller has given up", "no entry is left, long before its lease ends; with `WithFencing` the server refuses the claim", "lock/redisstore", "TestClaimThatWasLeftBehindLandsLate TestServerClocks"},
		{"no-orphan", "a call returns while its claim is still in a batch, and the claim lands a minute later", "the claim is removed when it has landed, and Close waits", "lock", "TestCallsThatAreLeftBehind"},
		{"no-orphan", "a process is killed, on a lock, in the middle of a run, after `Commit`", "other processes wait for one lease at most; then outcome unknown, or a second run by choice", "internal/faults", "TestKilledProcessBlocksForOneLease TestOnceCrash"},
		{"no-orphan", "a handler hangs, and an operator frees its key", "other requests run; the context of the handler ends", "lock", "TestHungHandler TestRemovedKeyIsNeverCreatedAgain"},
		{"no-self-conflict", "go-redis repeats a plain `SETNX` whose reply was lost", broken + "the client is refused by its own claim (httplatch does not use it)", "lock/redisstore", "TestPlainSetNXRepeatsAndDeniesItself"},
		{"no-self-conflict", "a release of the same process has no answer", "the next request does not get `409`", "lock", "TestFullQueueBehindAnUnansweredRelease TestFreedInTheInstantTheWaitEnds"},
		{"no-self-conflict", "the server's clock jumps back by an hour", "the validity ends on time, and the process is not locked out", "internal/faults", "TestClockJumpsBack"},
		{"three outcomes", "callers share a connection, which ends after any byte; slots that move", "each command has its own outcome, and none is written twice", "lock/redisstore", "TestConnectionsThatAreCut TestRepliesOfAnotherType TestMovedSlots"},
		{"three outcomes", "a command is in the queue when its caller leaves", "it was not applied, and is not sent", "lock/redisstore/internal/wire", "TestCallersThatLeave"},
		{"three outcomes", "a plain pipeline, and go-redis' autopipeliner", broken + "they repeat or write abandoned commands (httplatch uses neither)", "lock/redisstore", "TestAutoPipelinerSendsWhatWasAbandoned"},
		{"three outcomes", "replies come byte by byte", "nothing changes", "lock/redisstore/internal/wire", "TestRepliesInPieces"},
		{"three outcomes", "refusals by real servers, and forged ones", "`503`, one log line a minute and kind; a refusal that lasts is not tried again", "lock/redisstore", "TestReplies TestRefusalsOfRealServers TestDenialsAreNotTriedAgain TestRefusalsInScriptsOfRedis62"},
		{"three outcomes", "a commit waits for a standby that is gone", "it is not reported as committed", "lock/pgstore", "TestCallThatWaitsForItsStandby TestOutcomeIsAskedOfThePrimary"},
		{"notified", "a server is gone for longer than the lease", "the holder is notified within the lease", "internal/faults", "TestCampaign TestCampaignCatches"},
		{"notified", "work of three leases; a hold over its maximum", "the lease is renewed; the hold ends on time", "lock", "TestLongWorkIsRenewed TestMaxHoldEndsTheLease"},
		{"once", "a server out of memory between claim and settle", "the answer arrives, and held locks can be renewed", "lock/redisstore", "TestOutOfMemory"},
		{"once", "orders in transactions of PostgreSQL (directly and through PgBouncer), MariaDB and SQLite, under faults and kills", "each answered order exists once, as it was answered", "internal/history/campaign", "TestOnce TestOnceCatches"},
		{"once", "PostgreSQL fails over to a synchronous standby, MariaDB to a semi-synchronous replica", "no answered order is lost", "internal/history/campaign", "TestFailovers TestFailoversCatch"},
		{"once", "a holder stops between a row and its commit, for longer than its lease", "its commit is refused, and its caller gets the answer of the successor", "lock/pgstore", "TestLoserIsRolledBack"},
		{"once", "half-hour days of 300 orders with killed, paused and deployed desks", "no order is placed twice or lost, no answer is false, and no customer is locked out", "bench/internal/day", "TestDays TestDaysCatch"},
		{"once", "chains of five steps over five stores: killed, paused and cut off before, in and after each step", "each call has one key and one result, and each order one answer", "internal/history/campaign", "TestSteps TestStepsCatches"},
		{"once", "a shop is killed before and after the effect of each of its calls; refunded and restocked, with each reply lost", "one effect of each call; no order that is not paid", "example/full/pay", "TestKilledInEachCall TestRefundedAndRestocked"},
		{"once", "an entry is gone while its work runs: a restart without persistence, an eviction, an operator", "the answer is kept all the same, unless other work has the key, or the work was notified of the loss", "internal/faults", "TestServerForgetsALock"},
		{"once", "receipts and fences are asked of a quorum", "refused before anything runs", "lock/quorum", "TestHasNoReceipts TestHasNoFences"},
		{"same-answer", "duplicates at once, at two Lockers", "one run, and one answer for every caller", "lock", "TestOnceWaiters"},
		{"same-answer", "472 cases over two stores and two routers", "[the table](semantics.md)", "internal/semantics", "TestPage"},
		{"same-answer", "connections cut after each byte of orders and answers", "one order, and its answer", "client", "TestCutAtEachByte TestCutDoubles TestChainCutAtEachByte"},
		{"bounded", "a proxy loses answers, requests or both", "calls end within the budget, and no caller is locked out afterwards", "internal/faults", "TestCampaign TestCampaignCatches"},
		{"bounded", "a server is stopped, paused, busy, killed, or a replica for a while", "the same", "internal/faults", "TestCampaign"},
		{"bounded", "a slow line, and a receipt of 1 MiB", "no call waits for it, and nothing runs twice", "internal/faults", "TestSlowLine"},
		{"bounded", "a connection that callers share, or a node of a Cluster, fails silently", "its callers lose one try, other callers nothing", "lock/redisstore", "TestDeadConnectionUnderLockers TestStalledNodeOfACluster"},
		{"bounded", "all connections are dropped without a word", "a call is late, and none is refused", "lock/redisstore/internal/wire", "TestDroppedConnections"},
		{"bounded", "waiters for one key; lost and false notifications", "each is granted once, and a lost notification costs one poll", "lock", "TestWaitersAreServedInOrder TestLostHintCostsAPollAtMost TestHintsAreBounded"},
		{"no-collapse", "600 callers and arrivals at five times the capacity; a stall under 0.8 of it", "at least 0.6 of the capacity, and no caller is refused for clean-up", "lock", "TestOverload TestOverloadCatches"},
		{"no-collapse", "600 callers of a server that takes its connections in turns", "0.9 of the capacity, no outcome is unknown, and no command is wasted", "lock/redisstore/internal/wire", "TestOverloadedServerIsAskedNothingInVain"},
		{"no-collapse", "an outage that leaves 400 releases without an answer", "grants in the first round trips after it", "lock", "TestCallersDoNotWaitForUnansweredReleases"},
		{"no-collapse", "no fault: 0.8 of its capacity, bursts of 1,000 callers", "no caller is refused", "lock", "TestHealthyServerRefusesNoCaller"},
		{"no-collapse", "round trips become a thousand times as long, or the server becomes slow", "no call is refused", "lock/redisstore/internal/wire", "TestLongerWayRefusesNoCall TestWindowFollowsASlowServer"},
		{"no-collapse", "claims split the nodes of a quorum", "one is granted as soon as they do not arrive at the same time", "lock/quorum", "TestSplitVoteIsTriedAgain TestSplitVoteEndsWithTheBudget"},
		{"no-leak", "waiters leave", "at once, and without a trace", "lock", "TestWatchEndsWithTheWait TestWaiterThatLeavesPassesTheKeyOn"},
		{"no-leak", "a Locker is closed while claims, runs and clean-ups are in flight, or its store is gone", "it waits for them, within its budget", "lock", "TestCloseWaitsForHolders TestCloseDuringClaim TestCloseIsBoundedWhenTheStoreIsGone TestCloseWaitsForCallsThatAreLeftBehind"},
	}
}

// TestPromises: each promise of docs/reliability.md has a check, each check has tests, and
// docs/evidence/promises.md lists them.
func TestPromises(t *testing.T) {
	t.Parallel()
	var promises []string
	_, table, _ := strings.Cut(read(t, "../reliability.md"), "## What is promised")
	table, _, _ = strings.Cut(table, "\n## ")
	for _, m := range regexp.MustCompile(`(?m)^\| ([a-z -]+) \|`).FindAllStringSubmatch(table, -1) {
		if m[1] != "name" {
			promises = append(promises, m[1])
		}
	}
	require.Greater(t, len(promises), 8)
	var b strings.Builder
	b.WriteString("Written by `GOWORK=$PWD/all.work go test ./docs/snippets -run TestPromises -update`, which finds each test:\n\n# Promises, and their tests\n\n" +
		"The promises are those of [reliability](../reliability.md#what-is-promised).\n\n| promise | fault | what must hold | tests |\n|---|---|---|---|\n")
	tested := map[string]bool{}
	for _, c := range checks() {
		require.Contains(t, promises, c.promise)
		tested[c.promise] = tested[c.promise] || !strings.HasPrefix(c.holds, broken)
		declared := testsIn(t, c.dir)
		for name := range strings.FieldsSeq(c.tests) {
			require.Contains(t, declared, name, c.dir)
		}
		names := "`" + strings.Join(strings.Fields(c.tests), "`, `") + "`"
		holds := c.holds
		if cannot, ok := strings.CutPrefix(holds, broken); ok {
			holds = "**" + strings.TrimSuffix(broken, ": ") + "**: " + cannot
		}
		fmt.Fprintf(&b, "| %s | %s | %s | %s in [`%s`](../../%s) |\n", c.promise, c.fault, holds, names, c.dir, c.dir)
	}
	for _, p := range promises {
		require.True(t, tested[p], "no test of %s", p)
	}
	requirePage(t, "promises.md", b.String())
}

// TestDatabases: docs/databases.md names tests that exist.
func TestDatabases(t *testing.T) {
	t.Parallel()
	var declared []string
	for _, store := range []string{"pgstore", "mysqlstore", "sqlitestore"} {
		declared = append(declared, testsIn(t, "lock/"+store)...)
	}
	declared = append(declared, testsIn(t, "internal/history/campaign")...)
	named := regexp.MustCompile("`(Test[A-Za-z]+)`").FindAllStringSubmatch(read(t, "../databases.md"), -1)
	require.Greater(t, len(named), 20)
	for _, name := range named {
		require.Contains(t, declared, name[1])
	}
}

func testsIn(t *testing.T, dir string) (names []string) {
	t.Helper()
	for _, file := range must.Get(filepath.Glob(filepath.Join("../..", dir, "*_test.go")))(t) {
		for _, m := range regexp.MustCompile(`(?m)^func (Test\w+)\(`).FindAllStringSubmatch(read(t, file), -1) {
			names = append(names, m[1])
		}
	}
	require.NotEmpty(t, names, dir)
	return names
}
