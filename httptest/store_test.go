package latchtest_test

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	latchtest "github.com/httplatch/httplatch/httptest"
	"github.com/httplatch/httplatch/internal/testkit/faketx"
	"github.com/httplatch/httplatch/internal/testkit/parallel"
	"github.com/httplatch/httplatch/lock"
	"github.com/httplatch/httplatch/lock/memstore"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// watch runs one rule on a store, in a bubble, and returns how it ended.
func watch(t *testing.T, rule string, open func() lock.Store) *recorder {
	t.Helper()
	return inBubble(t, func(r *recorder) { latchtest.Run(r, rule, time.Second, open()) })
}

// inBubble calls run in a bubble, and returns how it ended.
func inBubble(t *testing.T, run func(r *recorder)) *recorder {
	t.Helper()
	var r *recorder
	synctest.Test(t, func(t *testing.T) {
		r = &recorder{T: t}
		done := make(chan struct{})
		go func() {
			defer close(done)
			run(r)
		}()
		<-done
		time.Sleep(time.Minute) // for calls that a rule did not wait for, and for the clean-up of a Locker
	})
	return r
}

// recorder is a test that may fail without a test failing.
type recorder struct {
	*testing.T
	failed, skipped string
}

func (r *recorder) Fatalf(format string, args ...any) {
	r.failed = fmt.Sprintf(format, args...)
	runtime.Goexit()
}

func (r *recorder) Skipf(format string, args ...any) {
	r.skipped = fmt.Sprintf(format, args...)
	runtime.Goexit()
}

// committing is a database whose commits have a fault, except for the first ones.
func committing(fault faketx.Fault, first ...faketx.Fault) *faketx.Store {
	s := faketx.New()
	s.Every(faketx.Commit, fault)
	s.Next(faketx.Commit, first...)
	s.Every(faketx.Outcome, faketx.Slow(100*time.Millisecond))
	return s
}

// A commit without an answer has an outcome. By the first commit, the rule knows how long one takes.
func TestRuleOfOutcomesPasses(t *testing.T) {
	t.Parallel()
	for name, commit := range map[string]faketx.Fault{"silent": faketx.HangReply, "cut off": faketx.LoseReply} {
		r := watch(t, "transaction_outcome_is_true", func() lock.Store { return committing(commit, faketx.Slow(time.Second)) })
		require.Empty(t, r.failed, name)
		require.Empty(t, r.skipped, name)
	}
}

// slowRequest is a COMMIT that takes long to arrive.
func slowRequest(ctx context.Context, apply func() error) error {
	if err := underway(ctx, 700*time.Millisecond); err != nil {
		return err
	}
	return apply()
}

// TestRulesFailOnBrokenStores gives TestStore its worth: each mistake of a store is found by the rule that forbids it.
func TestRulesFailOnBrokenStores(t *testing.T) {
	t.Parallel()
	for _, b := range allBroken() {
		parallel.Run(t, b.rule+"/"+b.name, func(t *testing.T) {
			r := watch(t, b.rule, b.open)
			require.Empty(t, r.skipped)
			require.NotEmpty(t, r.failed, "the rule did not notice")
			require.Contains(t, r.failed, "\nrule: "+latchtest.Rules()[b.rule])
			t.Log(r.failed)
		})
	}
}

func TestEveryRuleFailsOnABrokenStore(t *testing.T) {
	t.Parallel()
	can := make(map[string]string)
	for _, b := range allBroken() {
		can[b.rule] = latchtest.Rules()[b.rule]
	}
	require.Equal(t, latchtest.Rules(), can)
}

// Stores that obey the rules, and the rules of what they lack, which are skipped. A store need not
// have fences or be an Inspector, and a wrapper of an Inspector may not be one. A rule that needed a
// call to return within a lease would fail on a busy machine.
func TestRulesPass(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		open    func() lock.Store
		lacks   []string
		commits bool
	}{
		"memory":            {func() lock.Store { return memstore.New() }, []string{"locks_only_refuses"}, false},
		"no optional parts": {func() lock.Store { return bare{memstore.New()} }, optional, false},
		"locks only":        {func() lock.Store { return newBroken(forLocksOnly) }, receiptRules, false},
		"slow calls":        {func() lock.Store { return slow{memstore.New()} }, slices.DeleteFunc(slices.Clone(optional), isFence), false},
		"commits":           {func() lock.Store { return committing(nil) }, optional, true},
		"slow commits":      {func() lock.Store { return committing(faketx.Slow(700 * time.Millisecond)) }, optional, true},
		"late commits":      {func() lock.Store { return committing(slowRequest) }, optional, true},
	} {
		for rule := range latchtest.Rules() {
			parallel.Run(t, name+"/"+rule, func(t *testing.T) {
				r := watch(t, rule, tt.open)
				require.Empty(t, r.failed)
				require.Equal(t, slices.Contains(tt.lacks, rule) || !tt.commits && strings.HasPrefix(rule, "transaction_"), r.skipped != "", r.skipped)
			})
		}
	}
}

func isFence(rule string) bool { return strings.Contains(rule, "fence") }

// optional are the rules of the optional features of a store, except transactions.
var optional = []string{
	"fences_grow", "fence_of_grant_is_stable", "plain_claim_after_fenced_release", "fences_grow_past_unfenced_holders",
	"amend_replaces_receipt", "amend_compares", "amend_twice_unchanged", "amend_only_settled", "amend_race_one_winner",
	"set_takes_all", "set_takes_none", "set_again_ours", "set_again_after_end", "set_race_one_winner",
	"list_yields_live", "forget_compares_token", "page_yields_live", "locks_only_refuses",
}

// bare is a store that has neither fences nor an Inspector.
type bare struct{ lock.Store }

func (b bare) Claim(ctx context.Context, key string, c lock.Claim) (lock.Entry, error) {
	if c.Fenced {
		return lock.Entry{}, errUnsupported
	}
	return b.Store.Claim(ctx, key, c)
}

// slow is a store whose calls take longer than a lease, before and after their effect, unless their contexts end.
type slow struct{ lock.Store }

func stall(ctx context.Context) error { return underway(ctx, 1300*time.Millisecond) }

// underway takes d, or less if ctx ends.
func underway(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// slowly makes a call that a slow store has made up its mind about before the end of its context.
func slowly[T any](ctx context.Context, call func(ctx context.Context) (T, error)) (was T, err error) {
	if err := stall(ctx); err != nil {
		return was, fmt.Errorf("%w: %w", lock.ErrNotApplied, err)
	}
	if was, err = call(ctx); err == nil {
		err = stall(ctx)
	}
	return was, err
}

func (s slow) Claim(ctx context.Context, key string, c lock.Claim) (lock.Entry, error) {
	return slowly(ctx, func(ctx context.Context) (lock.Entry, error) { return s.Store.Claim(ctx, key, c) })
}

func (s slow) Renew(ctx context.Context, key string, c lock.Claim) (bool, error) {
	return slowly(ctx, func(ctx context.Context) (bool, error) { return s.Store.Renew(ctx, key, c) })
}

func (s slow) Settle(ctx context.Context, key string, c lock.Claim, receipt []byte, keep time.Duration) (bool, error) {
	return slowly(ctx, func(ctx context.Context) (bool, error) { return s.Store.Settle(ctx, key, c, receipt, keep) })
}

func (s slow) Release(ctx context.Context, key string, c lock.Claim) (bool, error) {
	return slowly(ctx, func(ctx context.Context) (bool, error) { return s.Store.Release(ctx, key, c) })
}

func (s slow) Get(ctx context.Context, key string) (lock.Entry, error) {
	return slowly(ctx, func(ctx context.Context) (lock.Entry, error) { return s.Store.Get(ctx, key) })
}

const failForReal = "LATCHTEST_FAIL_FOR_REAL"

// TestStoreOfABrokenStore is run by TestFailureAsPrinted.
func TestStoreOfABrokenStore(t *testing.T) {
	if os.Getenv(failForReal) == "" {
		t.Skip("fails, for another test")
	}
	latchtest.TestStore(t, 20*time.Millisecond, func(*testing.T) lock.Store { return newBroken(withRelease(anyOwner)) })
}

func TestFailureAsPrinted(t *testing.T) {
	t.Parallel()
	cmd := exec.Command(os.Args[0], "-test.run=^TestStoreOfABrokenStore$", "-test.timeout=60s")
	cmd.Env = append(os.Environ(), failForReal+"=1")
	out, err := cmd.CombinedOutput()
	var exit *exec.ExitError
	require.ErrorAs(t, err, &exit, "%s", out)
	require.Contains(t, string(out), "--- FAIL: TestStoreOfABrokenStore/release_not_ours")
	require.Contains(t, string(out), "Release by a token that does not hold the key = true, want false\n"+
		"            rule: only the token that holds a key releases it\n")
	require.NotContains(t, string(out), "FAIL: TestStoreOfABrokenStore/release_frees")
}
