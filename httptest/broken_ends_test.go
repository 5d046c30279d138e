package latchtest_test

import (
	"context"
	"sync"
	"time"

	"github.com/httplatch/httplatch/lock"
)

func brokenRenewals() []brokenStore {
	return []brokenStore{
		{"renew_extends", "says so and does nothing", func(b *broken) {
			b.renew = func(ctx context.Context, key string, c lock.Claim) (bool, error) {
				return b.at(ctx, key).Token == c.Token, nil
			}
		}},
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
					return true, second(b.complete.Claim(ctx, key, c))
				}
				return b.complete.Renew(ctx, key, c)
			}
		}},
		{"renew_not_ours", "no owner check", withRenewal(func(e lock.Entry, c *lock.Claim) { c.Token = e.Token })},
		{"renew_revives_abandoned", "only what is Held", func(b *broken) {
			b.renew = func(ctx context.Context, key string, c lock.Claim) (bool, error) {
				if b.at(ctx, key).State == lock.Abandoned {
					return false, nil
				}
				return b.complete.Renew(ctx, key, c)
			}
		}},
		{"renew_revives_abandoned", "its linger only", func(b *broken) {
			b.renew = func(ctx context.Context, key string, c lock.Claim) (bool, error) {
				if e := b.at(ctx, key); e.State == lock.Abandoned {
					return e.Token == c.Token, nil
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

func second(_ lock.Entry, err error) error { return err }

func withRenewal(change func(e lock.Entry, c *lock.Claim)) func(b *broken) {
	return func(b *broken) {
		b.renew = func(ctx context.Context, key string, c lock.Claim) (bool, error) {
			if e := b.at(ctx, key); e.State != lock.Free {
				change(e, &c)
			}
			return b.complete.Renew(ctx, key, c)
		}
	}
}

func brokenSettles() []brokenStore {
	type settle = func(b *broken, ctx context.Context, e lock.Entry, key, token string, receipt []byte, keep time.Duration) (bool, error)
	with := func(f settle) func(b *broken) {
		return func(b *broken) {
			b.settle = func(ctx context.Context, key string, c lock.Claim, receipt []byte, keep time.Duration) (bool, error) {
				return f(b, ctx, b.at(ctx, key), key, c.Token, receipt, keep)
			}
		}
	}
	return []brokenStore{
		{"settle_keeps_receipt", "the receipt is lost", with(
			func(b *broken, ctx context.Context, _ lock.Entry, key, token string, _ []byte, keep time.Duration) (bool, error) {
				return b.complete.Settle(ctx, key, lock.Claim{Token: token}, nil, keep)
			})},
		{"settle_keeps_receipt", "the fingerprint is lost", with(
			func(b *broken, ctx context.Context, e lock.Entry, key, token string, receipt []byte, keep time.Duration) (bool, error) {
				if e.Token == token {
					c := lock.Claim{Token: token, Attempt: e.Attempt, Owner: e.Owner, Lease: time.Minute}
					if _, err := b.overwrite(ctx, key, c); err != nil {
						return false, err
					}
				}
				return b.complete.Settle(ctx, key, lock.Claim{Token: token}, receipt, keep)
			})},
		{"settle_keeps_receipt", "KEEPTTL", with(
			func(b *broken, ctx context.Context, e lock.Entry, key, token string, receipt []byte, keep time.Duration) (bool, error) {
				return b.complete.Settle(ctx, key, lock.Claim{Token: token}, receipt, min(keep, e.Left))
			})},
		{"settle_expires", "never", with(
			func(b *broken, ctx context.Context, _ lock.Entry, key, token string, receipt []byte, keep time.Duration) (bool, error) {
				return b.complete.Settle(ctx, key, lock.Claim{Token: token}, receipt, 1000*keep)
			})},
		{"settle_expires", "too early", with(
			func(b *broken, ctx context.Context, _ lock.Entry, key, token string, receipt []byte, keep time.Duration) (bool, error) {
				return b.complete.Settle(ctx, key, lock.Claim{Token: token}, receipt, keep/2)
			})},
		{"settle_after_lapse", "only what is Held", with(
			func(b *broken, ctx context.Context, e lock.Entry, key, token string, receipt []byte, keep time.Duration) (bool, error) {
				if e.State == lock.Abandoned {
					return false, nil
				}
				return b.complete.Settle(ctx, key, lock.Claim{Token: token}, receipt, keep)
			})},
		{"settle_not_ours", "no owner check", with(
			func(b *broken, ctx context.Context, e lock.Entry, key, token string, receipt []byte, keep time.Duration) (bool, error) {
				if e.State != lock.Free {
					token = e.Token
				}
				return b.complete.Settle(ctx, key, lock.Claim{Token: token}, receipt, keep)
			})},
		{"settle_not_ours", "creates", with(
			func(b *broken, ctx context.Context, e lock.Entry, key, token string, receipt []byte, keep time.Duration) (bool, error) {
				if e.State == lock.Free {
					if _, err := b.complete.Claim(ctx, key, lock.Claim{Token: token, Lease: time.Minute}); err != nil {
						return false, err
					}
				}
				return b.complete.Settle(ctx, key, lock.Claim{Token: token}, receipt, keep)
			})},
		{"settle_not_ours", "revives a lease that has ended", func(b *broken) {
			var claimed sync.Map // last tokens, by key
			b.claim = func(ctx context.Context, key string, c lock.Claim) (lock.Entry, error) {
				claimed.Store(key, c.Token)
				return b.complete.Claim(ctx, key, c)
			}
			b.settle = func(ctx context.Context, key string, c lock.Claim, receipt []byte, keep time.Duration) (bool, error) {
				if token, _ := claimed.Load(key); token == c.Token && b.at(ctx, key).State == lock.Free {
					if _, err := b.complete.Claim(ctx, key, lock.Claim{Token: c.Token, Lease: time.Minute}); err != nil {
						return false, err
					}
				}
				return b.complete.Settle(ctx, key, c, receipt, keep)
			}
		}},
		{"settle_twice_unchanged", "the last one wins", with(
			func(b *broken, ctx context.Context, e lock.Entry, key, token string, receipt []byte, keep time.Duration) (bool, error) {
				if e.State == lock.Settled && e.Token == token {
					c := lock.Claim{Token: token, Attempt: e.Attempt, Owner: e.Owner, Fingerprint: e.Fingerprint, Lease: time.Minute}
					if _, err := b.overwrite(ctx, key, c); err != nil {
						return false, err
					}
				}
				return b.complete.Settle(ctx, key, lock.Claim{Token: token}, receipt, keep)
			})},
		{"settle_twice_unchanged", "the second is refused", with(
			func(b *broken, ctx context.Context, e lock.Entry, key, token string, receipt []byte, keep time.Duration) (bool, error) {
				if e.State == lock.Settled {
					return false, nil
				}
				return b.complete.Settle(ctx, key, lock.Claim{Token: token}, receipt, keep)
			})},
	}
}

func brokenReleases() []brokenStore {
	return []brokenStore{
		{"release_frees", "says so and leaves it to the lease", func(b *broken) {
			b.release = func(ctx context.Context, key string, c lock.Claim) (bool, error) {
				return b.at(ctx, key).Token == c.Token, nil
			}
		}},
		{"release_frees", "true whatever was there", func(b *broken) {
			b.release = func(ctx context.Context, key string, c lock.Claim) (bool, error) {
				_, err := b.complete.Release(ctx, key, c)
				return true, err
			}
		}},
		{"release_not_ours", "DEL", func(b *broken) {
			b.release = func(ctx context.Context, key string, c lock.Claim) (bool, error) {
				if e := b.at(ctx, key); e.State != lock.Free {
					c.Token = e.Token
				}
				return b.complete.Release(ctx, key, c)
			}
		}},
		{"release_not_ours", "does not notice that the lease has ended", func(b *broken) {
			var claimed sync.Map // last tokens, by key
			b.claim = func(ctx context.Context, key string, c lock.Claim) (lock.Entry, error) {
				claimed.Store(key, c.Token)
				return b.complete.Claim(ctx, key, c)
			}
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
		{"ends_by_token_alone", "compares all of the claim", func(b *broken) {
			b.release = func(ctx context.Context, key string, c lock.Claim) (bool, error) {
				if e := b.at(ctx, key); e.Owner != c.Owner || e.Attempt != c.Attempt {
					return false, nil
				}
				return b.complete.Release(ctx, key, c)
			}
		}},
		{"ends_by_token_alone", "the receipt's claim is the settle's", func(b *broken) {
			b.settle = func(ctx context.Context, key string, c lock.Claim, receipt []byte, keep time.Duration) (bool, error) {
				if b.at(ctx, key).Token == c.Token && c.Owner == "another" {
					c.Lease = time.Minute
					if _, err := b.overwrite(ctx, key, c); err != nil {
						return false, err
					}
				}
				return b.complete.Settle(ctx, key, c, receipt, keep)
			}
		}},
		{"release_after_lapse", "only what is Held", func(b *broken) {
			b.release = func(ctx context.Context, key string, c lock.Claim) (bool, error) {
				if b.at(ctx, key).State == lock.Abandoned {
					return false, nil
				}
				return b.complete.Release(ctx, key, c)
			}
		}},
	}
}
