package latchtest_test

import (
	"context"
	"slices"
	"strings"
	"time"

	"github.com/httplatch/httplatch/lock"
)

// brokenStore is one way to get a store wrong, and the rule that forbids it.
type brokenStore struct {
	rule, name string
	breakIt    func(b *broken)
}

func brokenStores() []brokenStore {
	return slices.Concat(brokenClaims(), brokenTakeovers(), brokenHandOvers(), brokenAmends(), brokenSets(), brokenRenewals(), brokenSettles(),
		brokenReleases(), brokenBytes(), brokenRaces(), brokenFences(), brokenContexts(), brokenInterrupts(), brokenInspectors(), brokenPages(), brokenLocksOnly())
}

func brokenClaims() []brokenStore {
	return []brokenStore{
		{"absent_is_zero", "minus 2 left, as PTTL says", withEntry(func(e *lock.Entry) {
			if e.State == lock.Free {
				e.Left = -2 * time.Millisecond
			}
		})},
		{"claim_takes_free", "every attempt is the first", withClaim(func(c *lock.Claim) { c.Attempt = 1 })},
		{"claim_same_token_again", "SET NX without GET", func(b *broken) {
			b.claim = func(ctx context.Context, key string, c lock.Claim) (lock.Entry, error) {
				if b.at(ctx, key).State != lock.Free {
					return lock.Entry{State: lock.Held}, nil
				}
				return b.complete.Claim(ctx, key, c)
			}
		}},
		{"claim_other_refused_unchanged", "SET without NX", func(b *broken) { b.claim = b.overwrite }},
		{"claim_other_refused_unchanged", "a refused claim takes no lease but the owner", withEntry(func(e *lock.Entry) {
			if e.State == lock.Held {
				e.Owner = "owner of b"
			}
		})},
		{"claim_own_receipt_is_no_grant", "the token alone decides", withAnswer(func(e *lock.Entry, c lock.Claim) {
			if e.Token == c.Token {
				e.State = lock.Held
			}
		})},
		{"get_reports", "counts the linger as lease", withEntry(func(e *lock.Entry) {
			if e.State == lock.Held {
				e.Left *= 4
			}
		})},
		{"get_reports", "removes what is abandoned", func(b *broken) {
			b.get = func(ctx context.Context, key string) (lock.Entry, error) {
				e := b.at(ctx, key)
				if e.State == lock.Abandoned {
					_, err := b.complete.Forget(ctx, key, e.Token)
					return e, err
				}
				return e, nil
			}
		}},
		{"lease_expires", "never", withClaim(func(c *lock.Claim) { c.Lease *= 1000 })},
		{"lease_expires", "too early", withClaim(func(c *lock.Claim) { c.Lease /= 2 })},
		{"lease_expires", "into a linger that was not asked for", withClaim(func(c *lock.Claim) { c.Linger = time.Hour })},
		{"linger_abandons", "no linger", withClaim(func(c *lock.Claim) { c.Linger = 0 })},
		{"linger_abandons", "for ever", withClaim(func(c *lock.Claim) { c.Linger *= 1000 })},
		{"claim_never_takes_abandoned", "any caller takes over", withClaimAt(func(e lock.Entry, c *lock.Claim) { c.Replaces = e.Token })},
		{"claim_never_takes_abandoned", "its own token comes back by a claim", withClaimAt(func(e lock.Entry, c *lock.Claim) {
			if e.Token == c.Token {
				c.Replaces = c.Token
			}
		})},
		{"own_linger", "no more left than the asker's linger is lapsed", func(b *broken) {
			b.claim = func(ctx context.Context, key string, c lock.Claim) (lock.Entry, error) {
				if e := b.at(ctx, key); e.State == lock.Held && e.Left <= c.Linger && e.Token == c.Replaces {
					return b.overwrite(ctx, key, c)
				}
				return b.complete.Claim(ctx, key, c)
			}
		}},
		{"own_linger", "what is left is of the asker's linger", withAnswer(func(e *lock.Entry, c lock.Claim) {
			if e.State == lock.Abandoned {
				e.Left = c.Linger
			}
		})},
		{"late_ops_never_touch_successor", "every former holder", func(b *broken) {
			held := make(map[string]bool)
			b.claim = func(ctx context.Context, key string, c lock.Claim) (lock.Entry, error) {
				held[key+"="+c.Token] = true
				return b.complete.Claim(ctx, key, c)
			}
			b.settle = func(ctx context.Context, key string, c lock.Claim, receipt []byte, keep time.Duration) (bool, error) {
				if held[key+"="+c.Token] {
					c.Token = b.at(ctx, key).Token
				}
				return b.complete.Settle(ctx, key, c, receipt, keep)
			}
		}},
	}
}

func brokenHandOvers() []brokenStore {
	handsOver := func(change func(c *lock.Claim)) func(b *broken) {
		return withClaim(func(c *lock.Claim) {
			if c.ReplacesHeld {
				change(c)
			}
		})
	}
	notIn := func(state lock.State) func(b *broken) {
		return withClaimAt(func(e lock.Entry, c *lock.Claim) {
			if c.ReplacesHeld && e.State == state {
				c.Replaces = ""
			}
		})
	}
	return []brokenStore{
		{"replaces_held_hands_over", "ReplacesHeld is ignored", withClaim(func(c *lock.Claim) { c.ReplacesHeld = false })},
		{"replaces_held_hands_over", "the fingerprint is kept", handsOver(keepFingerprint)},
		{"replaces_held_hands_over", "the lease is not shortened", handsOver(func(c *lock.Claim) { c.Lease = time.Hour })},
		{"replaces_held_hands_over", "the linger is kept", handsOver(func(c *lock.Claim) { c.Linger = time.Minute })},
		{"replaces_held_gives_back", "the linger is dropped", handsOver(func(c *lock.Claim) { c.Linger = 0 })},
		{"replaces_held_gives_back", "the attempt is kept", handsOver(func(c *lock.Claim) { c.Attempt = 2 })},
		{"replaces_held_hands_over", "the holder before still owns it", withRenewal(func(e lock.Entry, c *lock.Claim) {
			if c.Token == "a" {
				c.Token = e.Token
			}
		})},
		{"replaces_held_needs_token", "the beginning of the token will do", replacing(func(e lock.Entry, c lock.Claim) bool {
			return c.ReplacesHeld && e.State == lock.Held && strings.HasPrefix(e.Token, c.Replaces)
		})},
		{"replaces_held_leaves_the_rest", "a receipt is taken", replacing(func(e lock.Entry, c lock.Claim) bool {
			return c.ReplacesHeld && e.State == lock.Settled && e.Token == c.Replaces
		})},
		{"replaces_held_leaves_the_rest", "a free key is taken", notIn(lock.Free)},
		{"replaces_held_leaves_the_rest", "an abandoned key is not taken", notIn(lock.Abandoned)},
	}
}

func keepFingerprint(c *lock.Claim) { c.Fingerprint = []byte("fingerprint of " + c.Replaces) }

func brokenTakeovers() []brokenStore {
	takesOver := func(change func(c *lock.Claim)) func(b *broken) {
		return withClaim(func(c *lock.Claim) {
			if c.Replaces != "" {
				change(c)
			}
		})
	}
	return []brokenStore{
		{"replaces_takes_over", "Replaces is ignored", withClaim(func(c *lock.Claim) { c.Replaces = "" })},
		{"replaces_takes_over", "the attempt is kept", takesOver(func(c *lock.Claim) { c.Attempt = 1 })},
		{"replaces_takes_over", "the fingerprint is kept", takesOver(keepFingerprint)},
		{"replaces_needs_observed_token", "the beginning of the token will do", replacing(func(e lock.Entry, c lock.Claim) bool {
			return e.State == lock.Abandoned && strings.HasPrefix(e.Token, c.Replaces)
		})},
		{"replaces_only_abandoned", "a live lease is taken over", replacing(func(e lock.Entry, c lock.Claim) bool {
			return e.State == lock.Held && e.Token == c.Replaces
		})},
		{"replaces_only_abandoned", "a receipt is taken over", replacing(func(e lock.Entry, c lock.Claim) bool {
			return e.State == lock.Settled && e.Token == c.Replaces
		})},
		{"replaces_leaves_free", "a free key is taken", withClaimAt(func(e lock.Entry, c *lock.Claim) {
			if e.State == lock.Free {
				c.Replaces = ""
			}
		})},
	}
}

// withSet is a store with another ClaimSet.
func withSet(claim func(ctx context.Context, b *broken, keys []string, claims []lock.Claim) (lock.Entry, error)) func(b *broken) {
	return func(b *broken) {
		b.claimSet = func(ctx context.Context, keys []string, claims []lock.Claim) (lock.Entry, error) {
			return claim(ctx, b, keys, claims)
		}
	}
}

func brokenSets() []brokenStore {
	return []brokenStore{
		{"set_takes_all", "forgets the last key", withSet(func(ctx context.Context, b *broken, keys []string, claims []lock.Claim) (lock.Entry, error) {
			last := max(len(keys)-1, 1)
			return b.complete.ClaimSet(ctx, keys[:last], claims[:last])
		})},
		{"set_takes_all", "one token for all keys", withSet(func(ctx context.Context, b *broken, keys []string, claims []lock.Claim) (lock.Entry, error) {
			same := make([]lock.Claim, len(claims))
			for i := range same {
				same[i] = claims[0]
			}
			return b.complete.ClaimSet(ctx, keys, same)
		})},
		{"set_takes_none", "keeps the keys before the one in the way", withSet(
			func(ctx context.Context, b *broken, keys []string, claims []lock.Claim) (lock.Entry, error) {
				for i, key := range keys {
					e, err := b.complete.Claim(ctx, key, claims[i])
					if err != nil {
						return lock.Entry{}, err
					}
					if e.State != lock.Held || e.Token != claims[i].Token {
						e.Key = key
						return e, nil
					}
				}
				return lock.Entry{}, nil
			})},
		{"set_takes_none", "takes an abandoned entry", withSet(
			func(ctx context.Context, b *broken, keys []string, claims []lock.Claim) (lock.Entry, error) {
				for _, key := range keys {
					if e := b.at(ctx, key); e.State == lock.Abandoned {
						if _, err := b.complete.Release(ctx, key, lock.Claim{Token: e.Token}); err != nil {
							return lock.Entry{}, err
						}
					}
				}
				return b.complete.ClaimSet(ctx, keys, claims)
			})},
		{"set_takes_none", "does not name the key in the way", withSet(
			func(ctx context.Context, b *broken, keys []string, claims []lock.Claim) (lock.Entry, error) {
				e, err := b.complete.ClaimSet(ctx, keys, claims)
				e.Key = ""
				return e, err
			})},
		{"set_again_ours", "its own entries are in the way", withSet(
			func(ctx context.Context, b *broken, keys []string, claims []lock.Claim) (lock.Entry, error) {
				for _, key := range keys {
					if e := b.at(ctx, key); e.State != lock.Free {
						return e, nil
					}
				}
				return b.complete.ClaimSet(ctx, keys, claims)
			})},
		{"set_again_ours", "any token of the set will do", withSet(
			func(ctx context.Context, b *broken, keys []string, claims []lock.Claim) (lock.Entry, error) {
				tokens := map[string]lock.Claim{}
				for _, c := range claims {
					tokens[c.Token] = c
				}
				held := make([]lock.Claim, len(claims))
				for i, key := range keys {
					held[i] = claims[i]
					if c, is := tokens[b.at(ctx, key).Token]; is {
						held[i] = c
					}
				}
				return b.complete.ClaimSet(ctx, keys, held)
			})},
		{"set_again_after_end", "its own receipt is a grant", withSet(
			func(ctx context.Context, b *broken, keys []string, claims []lock.Claim) (lock.Entry, error) {
				for i, key := range keys {
					if e := b.at(ctx, key); e.State == lock.Settled && e.Token == claims[i].Token {
						return lock.Entry{}, nil
					}
				}
				return b.complete.ClaimSet(ctx, keys, claims)
			})},
		{"set_race_one_winner", "looks at all keys, then takes them", withSet(
			func(ctx context.Context, b *broken, keys []string, claims []lock.Claim) (lock.Entry, error) {
				for i, key := range keys {
					if e := b.at(ctx, key); e.State != lock.Free && e.Token != claims[i].Token {
						return e, nil
					}
				}
				time.Sleep(time.Millisecond)
				for i, key := range keys {
					if _, err := b.overwrite(ctx, key, claims[i]); err != nil {
						return lock.Entry{}, err
					}
				}
				return lock.Entry{}, nil
			})},
	}
}
