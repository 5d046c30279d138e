package latchtest

import (
	"context"
	"errors"
	"slices"
	"sync/atomic"

	"github.com/httplatch/httplatch/lock"
)

// interrupted is a call with its result, and the two possible states of its key: after a call that
// was applied, and after a call that was not.
type interrupted struct {
	name            string
	key             string
	call            func(ctx context.Context, key string) (ok bool, err error)
	applied, before lock.State
	holder          string // the token that has the key if the call was not applied
	token           string // the token that has the key if the call was applied

	returned atomic.Bool
	ok       bool
	err      error
}

// interruptible returns one call of each kind.
func (p *probe) interruptible() []*interrupted {
	store, b := p.store, p.asked(p.claimOf("b", p.long, p.long))
	granted := func(e lock.Entry, err error) (bool, error) { return e.State == lock.Held && e.Token == "b", err }
	all := []*interrupted{
		{name: "Claim", before: lock.Free, applied: lock.Held, token: "b", call: func(ctx context.Context, key string) (bool, error) {
			return granted(store.Claim(ctx, key, b))
		}},
		{name: "Claim with Replaces", before: lock.Abandoned, holder: "a", applied: lock.Held, token: "b", call: func(ctx context.Context, key string) (bool, error) {
			b := b
			b.Replaces = "a"
			return granted(store.Claim(ctx, key, b))
		}},
		{name: "Renew", before: lock.Abandoned, holder: "a", applied: lock.Held, token: "a", call: func(ctx context.Context, key string) (bool, error) {
			return store.Renew(ctx, key, p.claimOf("a", p.long, p.long))
		}},
		{name: "Settle", before: lock.Held, holder: "a", applied: lock.Settled, token: "a", call: func(ctx context.Context, key string) (bool, error) {
			return store.Settle(ctx, key, lock.Claim{Token: "a"}, p.receipt([]byte("receipt")), p.long)
		}},
		{name: "Release", before: lock.Held, holder: "a", applied: lock.Free, call: func(ctx context.Context, key string) (bool, error) {
			return store.Release(ctx, key, lock.Claim{Token: "a"})
		}},
		{name: "Get", before: lock.Held, holder: "a", applied: lock.Held, token: "a", call: func(ctx context.Context, key string) (bool, error) {
			e, err := store.Get(ctx, key)
			return e.State == lock.Held && e.Token == "a", err
		}},
	}
	if p.locksOnly() {
		all = slices.DeleteFunc(all, func(c *interrupted) bool { return c.before == lock.Abandoned })
	}
	return all
}

// lie describes how the result of a call contradicts e, the entry under its key. It returns "" if
// there is no contradiction.
func (c *interrupted) lie(e lock.Entry) string {
	is := func(state lock.State, token string) bool {
		return e.State == state && (state == lock.Free || e.Token == token)
	}
	applied, not := is(c.applied, c.token), is(c.before, c.holder)
	switch {
	case c.err == nil && !c.ok:
		return "nothing was in the way of a success"
	case c.err == nil && !applied:
		return "it has had no effect"
	case errors.Is(c.err, lock.ErrNotApplied) && !not:
		return "it has had an effect"
	case !applied && !not:
		return "that is neither what was there before nor what it was to leave"
	}
	return ""
}
