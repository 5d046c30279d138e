package latchtest_test

import (
	"bytes"
	"context"
	"time"

	"github.com/httplatch/httplatch/lock"
)

func brokenAmends() []brokenStore {
	// replaced removes the entry, and settles another in its place.
	replaced := func(ctx context.Context, b *broken, key string, c lock.Claim, to []byte, keep time.Duration) (bool, error) {
		c.Lease = time.Minute
		if _, err := b.overwrite(ctx, key, c); err != nil {
			return false, err
		}
		return b.complete.Settle(ctx, key, c, to, keep)
	}
	claimOf := func(e lock.Entry) lock.Claim {
		return lock.Claim{Token: e.Token, Attempt: e.Attempt, Fingerprint: e.Fingerprint, Owner: e.Owner}
	}
	// amending is a store that replaces the receipt of an entry that may accepts.
	amending := func(may func(e lock.Entry, token string, from, to []byte) bool) func(b *broken) {
		return func(b *broken) {
			b.amend = func(ctx context.Context, key, token string, from, to []byte) (bool, error) {
				e := b.at(ctx, key)
				if !may(e, token, from, to) {
					return b.complete.Amend(ctx, key, token, from, to)
				}
				return replaced(ctx, b, key, claimOf(e), to, e.Left)
			}
		}
	}
	settled := func(e lock.Entry) bool { return e.State == lock.Settled }
	return []brokenStore{
		{"amend_replaces_receipt", "keeps the receipt", func(b *broken) {
			b.amend = func(context.Context, string, string, []byte, []byte) (bool, error) { return true, nil }
		}},
		{"amend_replaces_receipt", "the keep begins again", func(b *broken) {
			b.amend = func(ctx context.Context, key, token string, from, to []byte) (bool, error) {
				e := b.at(ctx, key)
				if !settled(e) || !bytes.Equal(e.Receipt, from) {
					return b.complete.Amend(ctx, key, token, from, to)
				}
				return replaced(ctx, b, key, claimOf(e), to, time.Hour)
			}
		}},
		{"amend_replaces_receipt", "forgets the rest of the entry", func(b *broken) {
			b.amend = func(ctx context.Context, key, token string, from, to []byte) (bool, error) {
				e := b.at(ctx, key)
				if !settled(e) || !bytes.Equal(e.Receipt, from) {
					return b.complete.Amend(ctx, key, token, from, to)
				}
				return replaced(ctx, b, key, lock.Claim{Token: token, Attempt: 1}, to, e.Left)
			}
		}},
		{"amend_replaces_receipt", "1 KiB at most", func(b *broken) {
			b.amend = func(ctx context.Context, key, token string, from, to []byte) (bool, error) {
				return b.complete.Amend(ctx, key, token, from, to[:min(len(to), 1024)])
			}
		}},
		{"amend_compares", "any receipt will do", amending(func(e lock.Entry, token string, _, _ []byte) bool {
			return settled(e) && e.Token == token
		})},
		{"amend_compares", "the beginning of the receipt will do", amending(func(e lock.Entry, token string, from, _ []byte) bool {
			return settled(e) && e.Token == token && len(from) > 0 && bytes.HasPrefix(e.Receipt, from)
		})},
		{"amend_compares", "the end of the receipt will do", amending(func(e lock.Entry, token string, from, _ []byte) bool {
			return settled(e) && e.Token == token && len(from) > 0 && bytes.HasSuffix(e.Receipt, from)
		})},
		{"amend_compares", "any token will do", amending(func(e lock.Entry, _ string, from, _ []byte) bool {
			return settled(e) && bytes.Equal(e.Receipt, from)
		})},
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
		{"amend_only_settled", "makes a receipt of nothing", func(b *broken) {
			b.amend = func(ctx context.Context, key, token string, from, to []byte) (bool, error) {
				if b.at(ctx, key).State == lock.Free {
					return replaced(ctx, b, key, lock.Claim{Token: token, Attempt: 1}, to, time.Hour)
				}
				return b.complete.Amend(ctx, key, token, from, to)
			}
		}},
		{"amend_race_one_winner", "GET, then SET", func(b *broken) {
			b.amend = func(ctx context.Context, key, token string, from, to []byte) (bool, error) {
				e := b.at(ctx, key)
				if !settled(e) || e.Token != token || !bytes.Equal(e.Receipt, from) {
					return b.complete.Amend(ctx, key, token, from, to)
				}
				time.Sleep(time.Millisecond)
				ok, err := b.complete.Amend(ctx, key, token, b.at(ctx, key).Receipt, to)
				return ok, err
			}
		}},
	}
}
