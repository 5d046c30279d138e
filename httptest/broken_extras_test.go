package latchtest_test

import (
	"bytes"
	"context"
	"iter"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/httplatch/httplatch/lock"
)

func brokenBytes() []brokenStore {
	return []brokenStore{
		{"tokens_opaque", "the beginning of a token will do", func(b *broken) {
			b.release = func(ctx context.Context, key string, c lock.Claim) (bool, error) {
				if e := b.at(ctx, key); strings.HasPrefix(e.Token, c.Token) {
					c.Token = e.Token
				}
				return b.complete.Release(ctx, key, c)
			}
		}},
		{"tokens_opaque", "UTF-8", withClaim(func(c *lock.Claim) { c.Token = strings.ToValidUTF8(c.Token, "\ufffd") })},
		{"tokens_opaque", "128 bytes", withClaim(func(c *lock.Claim) { c.Token = c.Token[:min(len(c.Token), 128)] })},
		{"keys_opaque", "C strings", withKeys(func(key string) string {
			key, _, _ = strings.Cut(key, "\x00")
			return key
		})},
		{"keys_opaque", "UTF-8", withKeys(func(key string) string { return strings.ToValidUTF8(key, "\ufffd") })},
		{"keys_opaque", "case", withKeys(strings.ToLower)},
		{"keys_opaque", "space", withKeys(strings.TrimSpace)},
		{"keys_opaque", "one encoding for two", withKeys(func(key string) string { return strings.ReplaceAll(key, "%41", "A") })},
		{"keys_opaque", "1000 bytes", withKeys(func(key string) string { return key[:min(len(key), 1000)] })},
		{"slices_copied", "keeps what it is given", func(b *broken) {
			given := make(map[string][]byte)
			b.claim = func(ctx context.Context, key string, c lock.Claim) (lock.Entry, error) {
				given[key] = c.Fingerprint
				return b.complete.Claim(ctx, key, c)
			}
			b.get = func(ctx context.Context, key string) (lock.Entry, error) {
				e := b.at(ctx, key)
				e.Fingerprint = bytes.Clone(given[key])
				return e, nil
			}
		}},
		{"slices_copied", "returns what it keeps", func(b *broken) {
			kept := make(map[string][]byte)
			b.settle = func(ctx context.Context, key string, c lock.Claim, receipt []byte, keep time.Duration) (bool, error) {
				kept[key] = bytes.Clone(receipt)
				return b.complete.Settle(ctx, key, c, receipt, keep)
			}
			b.get = func(ctx context.Context, key string) (lock.Entry, error) {
				e := b.at(ctx, key)
				e.Receipt = kept[key]
				return e, nil
			}
		}},
		{"receipts_binary", "C strings", withReceipt(func(r []byte) []byte {
			r, _, _ = bytes.Cut(r, []byte{0})
			return r
		})},
		{"receipts_binary", "64 KiB", withReceipt(func(r []byte) []byte { return r[:min(len(r), 64<<10)] })},
	}
}

func withKeys(mapKey func(key string) string) func(b *broken) {
	return func(b *broken) { b.mapKey = mapKey }
}

func withReceipt(change func(receipt []byte) []byte) func(b *broken) {
	return func(b *broken) {
		b.settle = func(ctx context.Context, key string, c lock.Claim, receipt []byte, keep time.Duration) (bool, error) {
			return b.complete.Settle(ctx, key, c, change(receipt), keep)
		}
	}
}

func brokenRaces() []brokenStore {
	// A round trip lies between look and act.
	checkThenAct := func(free func(e lock.Entry, c lock.Claim) bool) func(b *broken) {
		return func(b *broken) {
			var mu sync.Mutex
			b.claim = func(ctx context.Context, key string, c lock.Claim) (lock.Entry, error) {
				if !free(b.at(ctx, key), c) {
					return b.complete.Claim(ctx, key, c)
				}
				time.Sleep(time.Millisecond)
				mu.Lock()
				defer mu.Unlock()
				return b.overwrite(ctx, key, c)
			}
		}
	}
	return []brokenStore{
		{"one_winner", "GET, then SET", checkThenAct(func(e lock.Entry, _ lock.Claim) bool { return e.State == lock.Free })},
		{"one_winner", "the losers see another", withAnswer(func(e *lock.Entry, c lock.Claim) {
			if e.Token != c.Token {
				e.Token = "another"
			}
		})},
		{"takeover_race_one_winner", "GET, then SET", checkThenAct(func(e lock.Entry, c lock.Claim) bool {
			return e.State == lock.Abandoned && e.Token == c.Replaces
		})},
		{"hand_over_race_one_winner", "GET, then SET", checkThenAct(func(e lock.Entry, c lock.Claim) bool {
			return c.ReplacesHeld && e.State == lock.Held && e.Token == c.Replaces
		})},
	}
}

func brokenFences() []brokenStore {
	return []brokenStore{
		{"fences_grow", "a counter that goes with its entry", withFence(func(e *lock.Entry) { e.Fence = 1 })},
		{"fences_grow", "takeovers keep the fence", func(b *broken) {
			last := make(map[string]int64)
			b.claim = func(ctx context.Context, key string, c lock.Claim) (lock.Entry, error) {
				e, err := b.complete.Claim(ctx, key, c)
				if c.Replaces != "" && e.Token == c.Token {
					e.Fence = last[key]
				}
				last[key] = e.Fence
				return e, err
			}
			b.get = withoutFence(b)
		}},
		{"fences_grow", "unsupported, yet granted", func(b *broken) {
			b.claim = func(ctx context.Context, key string, c lock.Claim) (lock.Entry, error) {
				e, err := b.complete.Claim(ctx, key, c)
				if c.Fenced && err == nil {
					err = errUnsupported
				}
				return e, err
			}
		}},
		{"fence_of_grant_is_stable", "a new one for every answer", func(b *broken) {
			var last atomic.Int64
			withFence(func(e *lock.Entry) { e.Fence = last.Add(1) })(b)
		}},
		{"fence_of_grant_is_stable", "for those who did not ask", withClaim(func(c *lock.Claim) { c.Fenced = true })},
		{"fences_grow_past_unfenced_holders", "an unfenced holder's entry takes the place of the last fence", func(b *broken) {
			last, own := make(map[string]int64), make(map[string]bool)
			b.claim = func(ctx context.Context, key string, c lock.Claim) (lock.Entry, error) {
				e, err := b.complete.Claim(ctx, key, c)
				switch {
				case err != nil || e.Token != c.Token:
				case !c.Fenced:
					delete(last, key)
				case !own[key]: // else it is the same grant again
					last[key]++
				}
				own[key] = c.Fenced
				if c.Fenced && e.Token == c.Token {
					e.Fence = last[key]
				}
				return e, err
			}
			b.release = func(ctx context.Context, key string, c lock.Claim) (bool, error) {
				own[key] = false
				return b.complete.Release(ctx, key, c)
			}
			b.get = withoutFence(b)
		}},
		{"plain_claim_after_fenced_release", "the last fence stays in the way", func(b *broken) {
			fenced := make(map[string]bool)
			b.claim = func(ctx context.Context, key string, c lock.Claim) (lock.Entry, error) {
				if fenced[key] && !c.Fenced {
					return lock.Entry{State: lock.Held}, nil
				}
				fenced[key] = fenced[key] || c.Fenced
				return b.complete.Claim(ctx, key, c)
			}
		}},
	}
}

func withFence(change func(e *lock.Entry)) func(b *broken) {
	return func(b *broken) {
		b.claim = func(ctx context.Context, key string, c lock.Claim) (lock.Entry, error) {
			e, err := b.complete.Claim(ctx, key, c)
			if err == nil && c.Fenced {
				change(&e)
			}
			return e, err
		}
		b.get = withoutFence(b)
	}
}

func withoutFence(b *broken) func(context.Context, string) (lock.Entry, error) {
	return func(ctx context.Context, key string) (lock.Entry, error) {
		e := b.at(ctx, key)
		e.Fence = 0
		return e, nil
	}
}

func brokenContexts() []brokenStore {
	return []brokenStore{
		{"done_context_not_applied", "says unknown", func(b *broken) {
			b.claim = func(ctx context.Context, key string, c lock.Claim) (lock.Entry, error) {
				if err := ctx.Err(); err != nil {
					return lock.Entry{}, err
				}
				return b.complete.Claim(ctx, key, c)
			}
		}},
		{"done_context_not_applied", "acts all the same", func(b *broken) {
			b.release = func(ctx context.Context, key string, c lock.Claim) (bool, error) {
				ok, err := b.complete.Release(context.WithoutCancel(ctx), key, c)
				if ctx.Err() != nil {
					err = lock.ErrNotApplied
				}
				return ok, err
			}
		}},
		{"done_context_not_applied", "reads without a context", func(b *broken) {
			b.get = func(ctx context.Context, key string) (lock.Entry, error) { return b.at(ctx, key), nil }
		}},
	}
}

func brokenInspectors() []brokenStore {
	// listing makes b list the entries that keep accepts, and more.
	listing := func(b *broken, keep func(e lock.Entry) bool, more map[string]lock.Entry) {
		b.list = func(ctx context.Context) iter.Seq2[lock.Entry, error] {
			return func(yield func(lock.Entry, error) bool) {
				for e, err := range b.complete.List(ctx) {
					if keep(e) && !yield(e, err) {
						return
					}
				}
				for _, e := range more {
					if !yield(e, nil) {
						return
					}
				}
			}
		}
	}
	return []brokenStore{
		{"list_yields_live", "no receipts", func(b *broken) {
			listing(b, func(e lock.Entry) bool { return e.State != lock.Settled }, nil)
		}},
		{"list_yields_live", "what was released too", func(b *broken) {
			released := make(map[string]lock.Entry)
			b.release = func(ctx context.Context, key string, c lock.Claim) (bool, error) {
				released[key] = b.at(ctx, key)
				return b.complete.Release(ctx, key, c)
			}
			listing(b, func(lock.Entry) bool { return true }, released)
		}},
		{"forget_compares_token", "DEL", func(b *broken) {
			b.forget = func(ctx context.Context, key, token string) (bool, error) {
				if e := b.at(ctx, key); e.State != lock.Free {
					token = e.Token
				}
				return b.complete.Forget(ctx, key, token)
			}
		}},
		{"forget_compares_token", "no receipts", func(b *broken) {
			b.forget = func(ctx context.Context, key, token string) (bool, error) {
				return b.complete.Release(ctx, key, lock.Claim{Token: token})
			}
		}},
	}
}

func brokenPages() []brokenStore {
	// change breaks the entries of a page of a memory store.
	change := func(f func(b *broken, page []lock.Entry) []lock.Entry) func(b *broken) {
		return func(b *broken) {
			b.page = func(ctx context.Context, cursor string, limit int, match func(key string) bool) ([]lock.Entry, string, error) {
				page, next, err := b.complete.Page(ctx, cursor, limit, match)
				return f(b, page), next, err
			}
		}
	}
	return []brokenStore{
		{"page_yields_live", "with receipts", change(func(b *broken, page []lock.Entry) []lock.Entry {
			for i, e := range page {
				page[i].Receipt = b.at(context.Background(), e.Key).Receipt
			}
			return page
		})},
		{"page_yields_live", "all are held", change(func(_ *broken, page []lock.Entry) []lock.Entry {
			for i := range page {
				page[i].State = lock.Held
			}
			return page
		})},
		{"page_yields_live", "only the first page", func(b *broken) {
			b.page = func(ctx context.Context, cursor string, limit int, match func(key string) bool) ([]lock.Entry, string, error) {
				page, _, err := b.complete.Page(ctx, cursor, limit, match)
				return page, "", err
			}
		}},
		{"page_yields_live", "match is not asked", func(b *broken) {
			b.page = func(ctx context.Context, cursor string, limit int, _ func(key string) bool) ([]lock.Entry, string, error) {
				return b.complete.Page(ctx, cursor, limit, nil)
			}
		}},
	}
}
