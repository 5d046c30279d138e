package latchtest_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/httplatch/httplatch/lock"
)

var errLocksOnly = fmt.Errorf("%w: locks only: %w", lock.ErrNotApplied, errors.ErrUnsupported)

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
	but := func(change func(b *broken)) func(b *broken) {
		return func(b *broken) { forLocksOnly(b); change(b) }
	}
	unsaid := but(func(b *broken) { b.locksOnly = nil })
	return []brokenStore{
		{rule, "says so with another error", but(func(b *broken) { b.locksOnly = lock.ErrNotApplied })},
		{rule, "keeps receipts all the same", but(func(b *broken) { b.settle = b.complete.Settle })},
		{rule, "remembers holders all the same", but(func(b *broken) { b.claim = b.complete.Claim })},
		{rule, "renews with a linger", but(func(b *broken) { b.renew = b.complete.Renew })},
		{rule, "has no cool-downs", but(func(b *broken) {
			b.settle = func(context.Context, string, lock.Claim, []byte, time.Duration) (bool, error) {
				return false, errLocksOnly
			}
		})},
		{"settle_keeps_receipt", "for locks only, and does not say so", unsaid},
		{"linger_abandons", "for locks only, and does not say so", unsaid},
		{"replaces_takes_over", "for locks only, and does not say so", unsaid},
	}
}

// receiptRules are the rules about receipts, and about holders that have vanished.
var receiptRules = []string{
	"linger_abandons", "claim_never_takes_abandoned", "own_linger",
	"replaces_takes_over", "replaces_needs_observed_token", "replaces_only_abandoned", "replaces_leaves_free",
	"replaces_held_hands_over", "replaces_held_needs_token", "replaces_held_leaves_the_rest", "replaces_held_gives_back", "hand_over_race_one_winner",
	"takeover_race_one_winner", "renew_never_shortens", "renew_lengthens_linger", "renew_not_ours", "renew_revives_abandoned",
	"settle_after_lapse", "settle_not_ours", "release_not_ours", "release_after_lapse", "receipts_binary", "get_reports",
	"fences_grow", "fences_grow_past_unfenced_holders",
	"amend_replaces_receipt", "amend_compares", "amend_twice_unchanged", "amend_only_settled", "amend_race_one_winner",
}

func interrupts(ctx context.Context, d time.Duration) bool { return underway(ctx, d) != nil }

// brokenInterrupts are stores whose calls take a second, and which get it wrong when their contexts end meanwhile.
func brokenInterrupts() []brokenStore {
	const takes = time.Second
	notApplied := func(err error) error { return fmt.Errorf("%w: %w", lock.ErrNotApplied, err) }
	return []brokenStore{
		{"returns_when_context_ends", "sleeps through the end of its context", withClaim(func(*lock.Claim) {
			time.Sleep(5 * takes)
		})},
		{"returns_when_context_ends", "obeys deadlines, and no cancellation", func(b *broken) {
			b.release = func(ctx context.Context, key string, c lock.Claim) (bool, error) {
				uncancelled := context.WithoutCancel(ctx)
				if deadline, ok := ctx.Deadline(); ok {
					var cancel context.CancelFunc
					uncancelled, cancel = context.WithDeadline(uncancelled, deadline)
					defer cancel()
				}
				if err := underway(uncancelled, 5*takes); err != nil {
					return false, notApplied(err)
				}
				return b.complete.Release(ctx, key, c)
			}
		}},
		{"returns_when_context_ends", "obeys cancellation, and no deadline", func(b *broken) {
			b.settle = func(ctx context.Context, key string, c lock.Claim, receipt []byte, keep time.Duration) (bool, error) {
				err := underway(ctx, 5*takes)
				if _, ok := ctx.Deadline(); ok {
					time.Sleep(5 * takes)
				}
				if err != nil {
					return false, notApplied(err)
				}
				return b.complete.Settle(ctx, key, c, receipt, keep)
			}
		}},
		{"returns_when_context_ends", "looks at its context when it reads an answer", func(b *broken) {
			b.get = func(ctx context.Context, key string) (lock.Entry, error) {
				time.Sleep(2 * takes)
				return b.complete.Get(ctx, key)
			}
		}},
		{"interrupted_outcome_is_true", "whatever was cancelled was not applied", func(b *broken) {
			b.claim = func(ctx context.Context, key string, c lock.Claim) (lock.Entry, error) {
				e, err := b.complete.Claim(ctx, key, c)
				if late := underway(ctx, takes); err == nil && late != nil {
					return lock.Entry{}, notApplied(late)
				}
				return e, err
			}
		}},
		{"interrupted_outcome_is_true", "not applied, but on its way", func(b *broken) {
			b.release = func(ctx context.Context, key string, c lock.Claim) (bool, error) {
				if err := underway(ctx, takes); err != nil {
					go func() {
						time.Sleep(takes / 2)
						_, _ = b.complete.Release(context.WithoutCancel(ctx), key, c)
					}()
					return false, notApplied(err)
				}
				return b.complete.Release(ctx, key, c)
			}
		}},
		{"interrupted_outcome_is_true", "success is what it had begun", func(b *broken) {
			b.settle = func(ctx context.Context, key string, c lock.Claim, receipt []byte, keep time.Duration) (bool, error) {
				if interrupts(ctx, takes) {
					return true, nil
				}
				return b.complete.Settle(ctx, key, c, receipt, keep)
			}
		}},
		{"interrupted_outcome_is_true", "no answer is a no", func(b *broken) {
			b.renew = func(ctx context.Context, key string, c lock.Claim) (bool, error) {
				if interrupts(ctx, takes) {
					return false, nil
				}
				return b.complete.Renew(ctx, key, c)
			}
		}},
		{"interrupted_outcome_is_true", "half of a takeover", func(b *broken) {
			b.claim = func(ctx context.Context, key string, c lock.Claim) (lock.Entry, error) {
				if c.Replaces == "" {
					return b.complete.Claim(ctx, key, c)
				}
				if _, err := b.complete.Forget(ctx, key, c.Replaces); err != nil {
					return lock.Entry{}, err
				}
				if err := underway(ctx, takes); err != nil {
					return lock.Entry{}, err
				}
				c.Replaces = ""
				return b.complete.Claim(ctx, key, c)
			}
		}},
	}
}
