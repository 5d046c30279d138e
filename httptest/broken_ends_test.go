package latchtest_test

import (
	"bytes"
	"context"
	"sync"
	"time"

	"github.com/httplatch/httplatch/lock"
)

func brokenRenewals() []brokenStore {
	return []brokenStore{
		{"renew_extends", "says so and does nothing", func(b *broken) { b.renew = b.saysSo }},
		{"renew_never_shortens", "PEXPIRE", func(b *broken) {
			b.renew = func(ctx context.Context, key string, c lock.Claim) (bool, error) {
				e, err := b.overwrite(ctx, key, c)
				return e.State == lock.Held, err
			}
		}},
		{"renew_lengthens_linger", "the linger is the first claim's", withRenewal(func(_ lock.Entry, c *lock.Claim) { c.Linger = 0 })},
		{"renew_never_creates", "SET", func(b *broken) {
			b.renew = func(ctx context.Context, key string, c lock.Claim) (bool, error) {
				if b.at(ctx, key).State == lock.Free {
					_, err := b.complete.Claim(ctx, key, c)
					return true, err
				}
				return b.complete.Renew(ctx, key, c)
			}
		}},
		{"renew_not_ours", "no owner check", withRenewal(anyOwner)},
		{"renew_revives_abandoned", "only what is Held", withRenewal(onlyHeld)},
		{"renew_revives_abandoned", "its linger only", func(b *broken) {
			b.renew = func(ctx context.Context, key string, c lock.Claim) (bool, error) {
				if b.at(ctx, key).State == lock.Abandoned {
					return b.saysSo(ctx, key, c)
				}
				return b.complete.Renew(ctx, key, c)
			}
		}},
		{"renew_not_settled", "a receipt's keep becomes a lease", func(b *broken) {
			b.renew = func(ctx context.Context, key string, c lock.Claim) (bool, error) {
				e := b.at(ctx, key)
				if e.State != lock.Settled || e.Token != c.Token {
					return b.complete.Renew(ctx, key, c)
				}
				if _, err := b.overwrite(ctx, key, c); err != nil {
					return false, err
				}
				return b.complete.Settle(ctx, key, c, e.Receipt, c.Lease)
			}
		}},
	}
}

func anyOwner(e lock.Entry, c *lock.Claim) { c.Token = e.Token }

func onlyHeld(e lock.Entry, c *lock.Claim) {
	if e.State == lock.Abandoned {
		c.Token = strange
	}
}

// remembers returns the last token of each key that is claimed in b from now on.
func remembers(b *broken) *sync.Map {
	var claimed sync.Map
	b.claim = func(ctx context.Context, key string, c lock.Claim) (lock.Entry, error) {
		claimed.Store(key, c.Token)
		return b.complete.Claim(ctx, key, c)
	}
	return &claimed
}

func brokenSettles() []brokenStore {
	return []brokenStore{
		{"settle_keeps_receipt", "the receipt is lost", withSettle(func(_ lock.Entry, s *settle) { s.receipt = nil })},
		{"settle_keeps_receipt", "the fingerprint is lost", claimedAgain(func(e lock.Entry, c lock.Claim) (lock.Claim, bool) {
			return lock.Claim{Token: c.Token, Attempt: e.Attempt, Owner: e.Owner}, e.Token == c.Token
		})},
		{"settle_keeps_receipt", "KEEPTTL", withSettle(func(e lock.Entry, s *settle) { s.keep = min(s.keep, e.Left) })},
		{"settle_expires", "never", withSettle(func(_ lock.Entry, s *settle) { s.keep *= 1000 })},
		{"settle_expires", "too early", withSettle(func(_ lock.Entry, s *settle) { s.keep /= 2 })},
		{"settle_after_lapse", "only what is Held", withSettle(func(e lock.Entry, s *settle) { onlyHeld(e, &s.Claim) })},
		{"settle_not_ours", "no owner check", withSettle(func(e lock.Entry, s *settle) {
			if e.State != lock.Free {
				s.Token = e.Token
			}
		})},
		{"settle_not_ours", "creates", claimedAgain(func(e lock.Entry, c lock.Claim) (lock.Claim, bool) {
			return lock.Claim{Token: c.Token}, e.State == lock.Free
		})},
		{"settle_not_ours", "revives a lease that has ended", func(b *broken) {
			claimed := remembers(b)
			b.settle = func(ctx context.Context, key string, c lock.Claim, receipt []byte, keep time.Duration) (bool, error) {
				if token, _ := claimed.Load(key); token == c.Token && b.at(ctx, key).State == lock.Free {
					if _, err := b.complete.Claim(ctx, key, lock.Claim{Token: c.Token, Lease: time.Minute}); err != nil {
						return false, err
					}
				}
				return b.complete.Settle(ctx, key, c, receipt, keep)
			}
		}},
		{"settle_twice_unchanged", "the last one wins", claimedAgain(func(e lock.Entry, c lock.Claim) (lock.Claim, bool) {
			return claimOf(e), e.State == lock.Settled && e.Token == c.Token
		})},
		{"settle_twice_unchanged", "the second is refused", withSettle(func(e lock.Entry, s *settle) {
			if e.State == lock.Settled {
				s.Token = strange
			}
		})},
	}
}

func brokenReleases() []brokenStore {
	return []brokenStore{
		{"release_frees", "says so and leaves it to the lease", func(b *broken) { b.release = b.saysSo }},
		{"release_frees", "true whatever was there", func(b *broken) {
			b.release = func(ctx context.Context, key string, c lock.Claim) (bool, error) {
				_, err := b.complete.Release(ctx, key, c)
				return true, err
			}
		}},
		{"release_not_ours", "DEL", withRelease(anyOwner)},
		{"release_not_ours", "does not notice that the lease has ended", func(b *broken) {
			claimed := remembers(b)
			b.release = func(ctx context.Context, key string, c lock.Claim) (bool, error) {
				released, err := b.complete.Release(ctx, key, c)
				return released || err == nil && claimed.CompareAndDelete(key, c.Token), err
			}
		}},
		{"release_never_receipt", "the token alone decides", func(b *broken) {
			b.release = func(ctx context.Context, key string, c lock.Claim) (bool, error) {
				return b.complete.Forget(ctx, key, c.Token)
			}
		}},
		{"ends_by_token_alone", "compares all of the claim", withRelease(func(e lock.Entry, c *lock.Claim) {
			if e.Owner != c.Owner || e.Attempt != c.Attempt {
				c.Token = strange
			}
		})},
		{"ends_by_token_alone", "the receipt's claim is the settle's", claimedAgain(func(e lock.Entry, c lock.Claim) (lock.Claim, bool) {
			return c, e.Token == c.Token && c.Owner == "another"
		})},
		{"release_after_lapse", "only what is Held", withRelease(onlyHeld)},
	}
}

func brokenAmends() []brokenStore {
	// amending is a store that settles another claim, for another time, in place of an entry that may accepts.
	amending := func(
		may func(e lock.Entry, token string, from []byte) bool, as func(e lock.Entry, token string) (lock.Claim, time.Duration),
	) func(b *broken) {
		return func(b *broken) {
			b.amend = func(ctx context.Context, key, token string, from, to []byte) (bool, error) {
				e := b.at(ctx, key)
				if !may(e, token, from) {
					return b.complete.Amend(ctx, key, token, from, to)
				}
				c, keep := as(e, token)
				c.Lease = time.Minute
				if _, err := b.overwrite(ctx, key, c); err != nil {
					return false, err
				}
				return b.complete.Settle(ctx, key, c, to, keep)
			}
		}
	}
	same := func(e lock.Entry, _ string) (lock.Claim, time.Duration) { return claimOf(e), e.Left }
	settled := func(e lock.Entry) bool { return e.State == lock.Settled }
	right := func(e lock.Entry, _ string, from []byte) bool { return settled(e) && bytes.Equal(e.Receipt, from) }
	return []brokenStore{
		{"amend_replaces_receipt", "keeps the receipt", func(b *broken) {
			b.amend = func(context.Context, string, string, []byte, []byte) (bool, error) { return true, nil }
		}},
		{"amend_replaces_receipt", "the keep begins again", amending(right, func(e lock.Entry, _ string) (lock.Claim, time.Duration) {
			return claimOf(e), time.Hour
		})},
		{"amend_replaces_receipt", "forgets the rest of the entry", amending(right, func(e lock.Entry, token string) (lock.Claim, time.Duration) {
			return lock.Claim{Token: token, Attempt: 1}, e.Left
		})},
		{"amend_replaces_receipt", "1 KiB at most", func(b *broken) {
			b.amend = func(ctx context.Context, key, token string, from, to []byte) (bool, error) {
				return b.complete.Amend(ctx, key, token, from, to[:min(len(to), 1024)])
			}
		}},
		{"amend_compares", "the beginning of the receipt will do", amending(func(e lock.Entry, token string, from []byte) bool {
			return settled(e) && e.Token == token && len(from) > 0 && bytes.HasPrefix(e.Receipt, from)
		}, same)},
		{"amend_compares", "the end of the receipt will do", amending(func(e lock.Entry, token string, from []byte) bool {
			return settled(e) && e.Token == token && len(from) > 0 && bytes.HasSuffix(e.Receipt, from)
		}, same)},
		{"amend_compares", "any token will do", amending(right, same)},
		{"amend_twice_unchanged", "only the first send returns true", func(b *broken) {
			b.amend = func(ctx context.Context, key, token string, from, to []byte) (bool, error) {
				if e := b.at(ctx, key); bytes.Equal(e.Receipt, to) {
					return false, nil
				}
				return b.complete.Amend(ctx, key, token, from, to)
			}
		}},
		{"amend_only_settled", "settles, too", func(b *broken) {
			b.amend = func(ctx context.Context, key, token string, from, to []byte) (bool, error) {
				if e := b.at(ctx, key); e.State == lock.Held || e.State == lock.Abandoned {
					return b.complete.Settle(ctx, key, lock.Claim{Token: token}, to, time.Hour)
				}
				return b.complete.Amend(ctx, key, token, from, to)
			}
		}},
		{"amend_only_settled", "makes a receipt of nothing", amending(func(e lock.Entry, _ string, _ []byte) bool {
			return e.State == lock.Free
		}, func(_ lock.Entry, token string) (lock.Claim, time.Duration) {
			return lock.Claim{Token: token, Attempt: 1}, time.Hour
		})},
		{"amend_race_one_winner", "GET, then SET", func(b *broken) {
			b.amend = func(ctx context.Context, key, token string, from, to []byte) (bool, error) {
				e := b.at(ctx, key)
				if e.Token != token || !right(e, token, from) {
					return b.complete.Amend(ctx, key, token, from, to)
				}
				time.Sleep(time.Millisecond)
				return b.complete.Amend(ctx, key, token, b.at(ctx, key).Receipt, to)
			}
		}},
	}
}
