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
		{"claim_takes_free", "every attempt is the first", withClaim(func(c *lock.Claim) {
			c.Attempt = 1
		})},
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
		{"claim_never_takes_abandoned", "any caller takes over", withClaimAt(func(e lock.Entry, c *lock.Claim) {
			c.Replaces = e.Token
		})},
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

func withClaim(change func(c *lock.Claim)) func(b *broken) {
	return func(b *broken) {
		b.claim = func(ctx context.Context, key string, c lock.Claim) (lock.Entry, error) {
			change(&c)
			return b.complete.Claim(ctx, key, c)
		}
	}
}

// withClaimAt is withClaim that sees the entry under the key.
func withClaimAt(change func(e lock.Entry, c *lock.Claim)) func(b *broken) {
	return func(b *broken) {
		b.claim = func(ctx context.Context, key string, c lock.Claim) (lock.Entry, error) {
			change(b.at(ctx, key), &c)
			return b.complete.Claim(ctx, key, c)
		}
	}
}

// withAnswer is a store that answers claims with other entries, and withEntry reads.
func withAnswer(change func(e *lock.Entry, c lock.Claim)) func(b *broken) {
	return func(b *broken) {
		b.claim = func(ctx context.Context, key string, c lock.Claim) (lock.Entry, error) {
			e, err := b.complete.Claim(ctx, key, c)
			change(&e, c)
			return e, err
		}
	}
}

func withEntry(change func(e *lock.Entry)) func(b *broken) {
	return func(b *broken) {
		b.get = func(ctx context.Context, key string) (lock.Entry, error) {
			e := b.at(ctx, key)
			change(&e)
			return e, nil
		}
	}
}

// replacing is a store whose claims with Replaces take an entry that which accepts.
func replacing(which func(e lock.Entry, c lock.Claim) bool) func(b *broken) {
	return func(b *broken) {
		b.claim = func(ctx context.Context, key string, c lock.Claim) (lock.Entry, error) {
			if e := b.at(ctx, key); e.State != lock.Free && c.Replaces != "" && which(e, c) {
				c.Replaces, c.ReplacesHeld = "", false
				return b.overwrite(ctx, key, c)
			}
			return b.complete.Claim(ctx, key, c)
		}
	}
}

func brokenHandOvers() []brokenStore {
	return []brokenStore{
		{"replaces_held_hands_over", "ReplacesHeld is ignored", withClaim(func(c *lock.Claim) { c.ReplacesHeld = false })},
		{"replaces_held_hands_over", "the fingerprint is kept", withClaim(func(c *lock.Claim) {
			if c.ReplacesHeld {
				c.Fingerprint = []byte("fingerprint of " + c.Replaces)
			}
		})},
		{"replaces_held_hands_over", "the lease is not shortened", withClaim(func(c *lock.Claim) {
			if c.ReplacesHeld {
				c.Lease = time.Hour
			}
		})},
		{"replaces_held_hands_over", "the linger is kept", withClaim(func(c *lock.Claim) {
			if c.ReplacesHeld {
				c.Linger = time.Minute
			}
		})},
		{"replaces_held_gives_back", "the linger is dropped", withClaim(func(c *lock.Claim) {
			if c.ReplacesHeld {
				c.Linger = 0
			}
		})},
		{"replaces_held_gives_back", "the attempt is kept", withClaim(func(c *lock.Claim) {
			if c.ReplacesHeld {
				c.Attempt = 2
			}
		})},
		{"replaces_held_hands_over", "the holder before still owns it", func(b *broken) {
			b.renew = func(ctx context.Context, key string, c lock.Claim) (bool, error) {
				if c.Token == "a" {
					c.Token = b.at(ctx, key).Token
				}
				return b.complete.Renew(ctx, key, c)
			}
		}},
		{"replaces_held_needs_token", "any Replaces will do", replacing(func(e lock.Entry, c lock.Claim) bool {
			return c.ReplacesHeld && e.State == lock.Held
		})},
		{"replaces_held_needs_token", "the beginning of the token will do", replacing(func(e lock.Entry, c lock.Claim) bool {
			return c.ReplacesHeld && e.State == lock.Held && strings.HasPrefix(e.Token, c.Replaces)
		})},
		{"replaces_held_leaves_the_rest", "a receipt is taken", replacing(func(e lock.Entry, c lock.Claim) bool {
			return c.ReplacesHeld && e.State == lock.Settled && e.Token == c.Replaces
		})},
		{"replaces_held_leaves_the_rest", "a free key is taken", withClaimAt(func(e lock.Entry, c *lock.Claim) {
			if c.ReplacesHeld && e.State == lock.Free {
				c.Replaces = ""
			}
		})},
		{"replaces_held_leaves_the_rest", "an abandoned key is not taken", withClaimAt(func(e lock.Entry, c *lock.Claim) {
			if c.ReplacesHeld && e.State == lock.Abandoned {
				c.Replaces = ""
			}
		})},
	}
}

func brokenTakeovers() []brokenStore {
	return []brokenStore{
		{"replaces_takes_over", "Replaces is ignored", withClaim(func(c *lock.Claim) { c.Replaces = "" })},
		{"replaces_takes_over", "the attempt is kept", withClaim(func(c *lock.Claim) {
			if c.Replaces != "" {
				c.Attempt = 1
			}
		})},
		{"replaces_takes_over", "the fingerprint is kept", withClaim(func(c *lock.Claim) {
			if c.Replaces != "" {
				c.Fingerprint = []byte("fingerprint of " + c.Replaces)
			}
		})},
		{"replaces_needs_observed_token", "any Replaces will do", replacing(func(e lock.Entry, _ lock.Claim) bool {
			return e.State == lock.Abandoned
		})},
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
