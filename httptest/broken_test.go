package latchtest_test

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"time"

	"github.com/httplatch/httplatch/lock"
	"github.com/httplatch/httplatch/lock/memstore"
)

var errUnsupported = fmt.Errorf("%w: no fences: %w", lock.ErrNotApplied, errors.ErrUnsupported)

type complete interface {
	lock.Store
	lock.Inspector
	lock.Amender
	lock.SetClaimer
	lock.Describer
}

// broken is a memory store that one of its methods, or all its keys, can be replaced in.
type broken struct {
	complete

	mapKey   func(key string) string
	claim    func(ctx context.Context, key string, c lock.Claim) (lock.Entry, error)
	renew    func(ctx context.Context, key string, c lock.Claim) (bool, error)
	settle   func(ctx context.Context, key string, c lock.Claim, receipt []byte, keep time.Duration) (bool, error)
	release  func(ctx context.Context, key string, c lock.Claim) (bool, error)
	get      func(ctx context.Context, key string) (lock.Entry, error)
	list     func(ctx context.Context) iter.Seq2[lock.Entry, error]
	forget   func(ctx context.Context, key, token string) (bool, error)
	amend    func(ctx context.Context, key, token string, from, to []byte) (bool, error)
	claimSet func(ctx context.Context, keys []string, claims []lock.Claim) (lock.Entry, error)
	page     func(ctx context.Context, cursor string, limit int, match func(key string) bool) ([]lock.Entry, string, error)

	locksOnly error
}

// Describe returns the description of the store.
func (b *broken) Describe() lock.Description {
	about := b.complete.Describe()
	about.Local, about.NoReceipts = false, b.locksOnly
	return about
}

func newBroken(breakIt func(b *broken)) lock.Store {
	memory := memstore.New()
	b := &broken{
		complete: memory,
		mapKey:   func(key string) string { return key },
		claim:    memory.Claim,
		renew:    memory.Renew,
		settle:   memory.Settle,
		release:  memory.Release,
		get:      memory.Get,
		list:     memory.List,
		forget:   memory.Forget,
		amend:    memory.Amend,
		claimSet: memory.ClaimSet,
		page:     memory.Page,
	}
	breakIt(b)
	return b
}

func (b *broken) Claim(ctx context.Context, key string, c lock.Claim) (lock.Entry, error) {
	return b.claim(ctx, b.mapKey(key), c)
}

func (b *broken) Renew(ctx context.Context, key string, c lock.Claim) (bool, error) {
	return b.renew(ctx, b.mapKey(key), c)
}

func (b *broken) Settle(ctx context.Context, key string, c lock.Claim, receipt []byte, keep time.Duration) (bool, error) {
	return b.settle(ctx, b.mapKey(key), c, receipt, keep)
}

func (b *broken) Release(ctx context.Context, key string, c lock.Claim) (bool, error) {
	return b.release(ctx, b.mapKey(key), c)
}

func (b *broken) Get(ctx context.Context, key string) (lock.Entry, error) {
	return b.get(ctx, b.mapKey(key))
}

func (b *broken) List(ctx context.Context) iter.Seq2[lock.Entry, error] { return b.list(ctx) }

func (b *broken) Forget(ctx context.Context, key, token string) (bool, error) {
	return b.forget(ctx, key, token)
}

func (b *broken) Amend(ctx context.Context, key, token string, from, to []byte) (bool, error) {
	return b.amend(ctx, b.mapKey(key), token, from, to)
}

func (b *broken) ClaimSet(ctx context.Context, keys []string, claims []lock.Claim) (lock.Entry, error) {
	return b.claimSet(ctx, keys, claims)
}

func (b *broken) Page(ctx context.Context, cursor string, limit int, match func(key string) bool) ([]lock.Entry, string, error) {
	return b.page(ctx, cursor, limit, match)
}

// at returns the entry under key.
func (b *broken) at(ctx context.Context, key string) lock.Entry {
	e, err := b.complete.Get(context.WithoutCancel(ctx), key)
	if err != nil {
		panic(err)
	}
	return e
}

// overwrite puts c under key, in place of any entry.
func (b *broken) overwrite(ctx context.Context, key string, c lock.Claim) (lock.Entry, error) {
	if e := b.at(ctx, key); e.State != lock.Free {
		if _, err := b.complete.Forget(ctx, key, e.Token); err != nil {
			return lock.Entry{}, err
		}
	}
	return b.complete.Claim(ctx, key, c)
}

// saysSo answers the owner of a key yes, and does nothing.
func (b *broken) saysSo(ctx context.Context, key string, c lock.Claim) (bool, error) {
	return b.at(ctx, key).Token == c.Token, nil
}

// strange is a token that owns no key.
const strange = "strange"

// withClaim is a store that grants another claim.
func withClaim(change func(c *lock.Claim)) func(b *broken) {
	return withClaimAt(func(_ lock.Entry, c *lock.Claim) { change(c) })
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

// withRenewal is a store that renews by another claim, and withRelease releases.
func withRenewal(change func(e lock.Entry, c *lock.Claim)) func(b *broken) {
	return func(b *broken) { b.renew = changed(b, change, b.complete.Renew) }
}

func withRelease(change func(e lock.Entry, c *lock.Claim)) func(b *broken) {
	return func(b *broken) { b.release = changed(b, change, b.complete.Release) }
}

type ending = func(ctx context.Context, key string, c lock.Claim) (bool, error)

// changed is call with another claim, where there is an entry.
func changed(b *broken, change func(e lock.Entry, c *lock.Claim), call ending) ending {
	return func(ctx context.Context, key string, c lock.Claim) (bool, error) {
		if e := b.at(ctx, key); e.State != lock.Free {
			change(e, &c)
		}
		return call(ctx, key, c)
	}
}

// settle has the arguments of Settle.
type settle struct {
	lock.Claim

	receipt []byte
	keep    time.Duration
}

// withSettle is a store that settles with other arguments.
func withSettle(change func(e lock.Entry, s *settle)) func(b *broken) {
	return func(b *broken) {
		b.settle = func(ctx context.Context, key string, c lock.Claim, receipt []byte, keep time.Duration) (bool, error) {
			s := settle{c, receipt, keep}
			change(b.at(ctx, key), &s)
			return b.complete.Settle(ctx, key, s.Claim, s.receipt, s.keep)
		}
	}
}

// claimedAgain is a store that first puts a claim under the key, if again says so, and then settles it.
func claimedAgain(again func(e lock.Entry, c lock.Claim) (as lock.Claim, ok bool)) func(b *broken) {
	return func(b *broken) {
		b.settle = func(ctx context.Context, key string, c lock.Claim, receipt []byte, keep time.Duration) (bool, error) {
			if as, ok := again(b.at(ctx, key), c); ok {
				as.Lease = time.Minute
				if _, err := b.overwrite(ctx, key, as); err != nil {
					return false, err
				}
			}
			return b.complete.Settle(ctx, key, c, receipt, keep)
		}
	}
}

// claimOf is the claim that an entry came from.
func claimOf(e lock.Entry) lock.Claim {
	return lock.Claim{Token: e.Token, Attempt: e.Attempt, Fingerprint: e.Fingerprint, Owner: e.Owner}
}
