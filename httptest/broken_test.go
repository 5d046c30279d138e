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

// broken is a memory store that one of its methods, or all its keys, can be
// replaced in.
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
