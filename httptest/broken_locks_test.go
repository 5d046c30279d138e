package latchtest_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	latchtest "github.com/httplatch/httplatch/httptest"
	"github.com/httplatch/httplatch/lock"
)

var errLocksOnly = fmt.Errorf("%w: locks only: %w", lock.ErrNotApplied, errors.ErrUnsupported)

// forLocksOnly makes b a store for locks only.
func forLocksOnly(b *broken) {
	b.locksOnly = errLocksOnly
	b.claim = func(ctx context.Context, key string, c lock.Claim) (lock.Entry, error) {
		if c.Linger > 0 || c.Replaces != "" {
			return lock.Entry{}, errLocksOnly
		}
		return b.complete.Claim(ctx, key, c)
	}
	b.renew = func(ctx context.Context, key string, c lock.Claim) (bool, error) {
		if c.Linger > 0 {
			return false, errLocksOnly
		}
		return b.complete.Renew(ctx, key, c)
	}
	b.settle = func(ctx context.Context, key string, c lock.Claim, receipt []byte, keep time.Duration) (bool, error) {
		if len(receipt) > 0 {
			return false, errLocksOnly
		}
		return b.complete.Settle(ctx, key, c, receipt, keep)
	}
}

func brokenLocksOnly() []brokenStore {
	const rule = "locks_only_refuses"
	return []brokenStore{
		{rule, "says so with another error", func(b *broken) {
			forLocksOnly(b)
			b.locksOnly = lock.ErrNotApplied
		}},
		{rule, "keeps receipts all the same", func(b *broken) {
			forLocksOnly(b)
			b.settle = b.complete.Settle
		}},
		{rule, "remembers holders all the same", func(b *broken) {
			forLocksOnly(b)
			b.claim = b.complete.Claim
		}},
		{rule, "renews with a linger", func(b *broken) {
			forLocksOnly(b)
			b.renew = b.complete.Renew
		}},
		{rule, "has no cool-downs", func(b *broken) {
			forLocksOnly(b)
			b.settle = func(context.Context, string, lock.Claim, []byte, time.Duration) (bool, error) {
				return false, errLocksOnly
			}
		}},
	}
}

// A store for locks only passes every rule, and is skipped where that is about
// receipts, or about holders that have vanished.
func TestRulesPassOnAStoreForLocksOnly(t *testing.T) {
	t.Parallel()
	skipped := []string{
		"linger_abandons", "claim_never_takes_abandoned", "own_linger",
		"replaces_takes_over", "replaces_needs_observed_token", "replaces_only_abandoned", "replaces_leaves_free",
		"replaces_held_hands_over", "replaces_held_needs_token", "replaces_held_leaves_the_rest", "replaces_held_gives_back", "hand_over_race_one_winner",
		"takeover_race_one_winner", "renew_never_shortens", "renew_lengthens_linger", "renew_not_ours", "renew_revives_abandoned",
		"settle_after_lapse", "settle_not_ours", "release_not_ours", "release_after_lapse", "receipts_binary", "get_reports",
		"fences_grow", "fences_grow_past_unfenced_holders",
		"amend_replaces_receipt", "amend_compares", "amend_twice_unchanged", "amend_only_settled", "amend_race_one_winner",
	}
	var were []string
	for rule := range latchtest.Rules() {
		r := watch(t, rule, func() lock.Store { return newBroken(forLocksOnly) })
		require.Empty(t, r.failed, rule)
		if r.skipped != "" && !strings.HasPrefix(rule, "transaction_") {
			require.Contains(t, r.skipped, "locks only", rule)
			were = append(were, rule)
		}
	}
	require.ElementsMatch(t, skipped, were)
}

// One that does not say so is not excused.
func TestRulesFailOnAStoreThatDoesNotSayThatItIsForLocksOnly(t *testing.T) {
	t.Parallel()
	for _, rule := range []string{"settle_keeps_receipt", "linger_abandons", "replaces_takes_over"} {
		r := watch(t, rule, func() lock.Store {
			return newBroken(func(b *broken) {
				forLocksOnly(b)
				b.locksOnly = nil
			})
		})
		require.NotEmpty(t, r.failed, rule)
	}
}
