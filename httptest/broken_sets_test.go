package latchtest_test

import (
	"context"
	"time"

	"github.com/httplatch/httplatch/lock"
)

func brokenSets() []brokenStore {
	// oneByOne claims each key by itself, and returns the first entry in the way.
	oneByOne := func(ctx context.Context, b *broken, keys []string, claims []lock.Claim) (lock.Entry, error) {
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
	}
	return []brokenStore{
		{"set_takes_all", "forgets the last key", func(b *broken) {
			b.claimSet = func(ctx context.Context, keys []string, claims []lock.Claim) (lock.Entry, error) {
				last := max(len(keys)-1, 1)
				return b.complete.ClaimSet(ctx, keys[:last], claims[:last])
			}
		}},
		{"set_takes_all", "one token for all keys", func(b *broken) {
			b.claimSet = func(ctx context.Context, keys []string, claims []lock.Claim) (lock.Entry, error) {
				same := make([]lock.Claim, len(claims))
				for i := range same {
					same[i] = claims[0]
				}
				return b.complete.ClaimSet(ctx, keys, same)
			}
		}},
		{"set_takes_none", "keeps the keys before the one in the way", func(b *broken) {
			b.claimSet = func(ctx context.Context, keys []string, claims []lock.Claim) (lock.Entry, error) {
				return oneByOne(ctx, b, keys, claims)
			}
		}},
		{"set_takes_none", "takes an abandoned entry", func(b *broken) {
			b.claimSet = func(ctx context.Context, keys []string, claims []lock.Claim) (lock.Entry, error) {
				for _, key := range keys {
					if e := b.at(ctx, key); e.State == lock.Abandoned {
						if _, err := b.complete.Release(ctx, key, lock.Claim{Token: e.Token}); err != nil {
							return lock.Entry{}, err
						}
					}
				}
				return b.complete.ClaimSet(ctx, keys, claims)
			}
		}},
		{"set_takes_none", "does not name the key in the way", func(b *broken) {
			b.claimSet = func(ctx context.Context, keys []string, claims []lock.Claim) (lock.Entry, error) {
				e, err := b.complete.ClaimSet(ctx, keys, claims)
				e.Key = ""
				return e, err
			}
		}},
		{"set_again_ours", "its own entries are in the way", func(b *broken) {
			b.claimSet = func(ctx context.Context, keys []string, claims []lock.Claim) (lock.Entry, error) {
				for _, key := range keys {
					if e := b.at(ctx, key); e.State != lock.Free {
						return e, nil
					}
				}
				return b.complete.ClaimSet(ctx, keys, claims)
			}
		}},
		{"set_again_ours", "any token of the set will do", func(b *broken) {
			b.claimSet = func(ctx context.Context, keys []string, claims []lock.Claim) (lock.Entry, error) {
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
			}
		}},
		{"set_again_after_end", "its own receipt is a grant", func(b *broken) {
			b.claimSet = func(ctx context.Context, keys []string, claims []lock.Claim) (lock.Entry, error) {
				for i, key := range keys {
					if e := b.at(ctx, key); e.State == lock.Settled && e.Token == claims[i].Token {
						return lock.Entry{}, nil
					}
				}
				return b.complete.ClaimSet(ctx, keys, claims)
			}
		}},
		{"set_race_one_winner", "looks at all keys, then takes them", func(b *broken) {
			b.claimSet = func(ctx context.Context, keys []string, claims []lock.Claim) (lock.Entry, error) {
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
			}
		}},
	}
}
