package latchtest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/httplatch/httplatch/lock"
)

// disturbed is a store that has faults in some calls.
type disturbed struct {
	lock.Store
	hits  func(op Op, key string) bool // asked once for every call
	fault fault
	lag   time.Duration
}

// disturb returns s with the fault f in the calls that hits selects. A call may take effect up to
// lag after its return.
func disturb(s lock.Store, hits func(Op, string) bool, f fault, lag time.Duration) lock.Store {
	d := &disturbed{Store: s, hits: hits, fault: f, lag: lag}
	if inspector, ok := s.(lock.Inspector); ok {
		return inspected{d, inspector}
	}
	return d
}

// inspected is a disturbed store over a [lock.Inspector].
type inspected struct {
	*disturbed
	lock.Inspector
}

// Describe returns the description of the inner store, with lag added to its MaxLag. Local is
// false, so that a Locker bounds the calls.
func (d *disturbed) Describe() lock.Description {
	about := lock.Describe(d.Store)
	about.Local = false
	about.MaxLag += d.lag
	return about
}

// meets reports whether a call has the fault. A call whose context has ended is never
// sent, so it cannot be lost.
func (d *disturbed) meets(ctx context.Context, op Op, key string) bool {
	return ctx.Err() == nil && d.hits(op, key)
}

// Claim implements [lock.Store]. Like the other methods, it copies slices before the fault, because
// the call to the inner store may be made after Claim has returned.
func (d *disturbed) Claim(ctx context.Context, key string, c lock.Claim) (lock.Entry, error) {
	if !d.meets(ctx, Claim, key) {
		return d.Store.Claim(ctx, key, c)
	}
	c.Fingerprint = bytes.Clone(c.Fingerprint)
	return lock.Entry{}, d.fault(ctx, Claim, func(ctx context.Context) { _, _ = d.Store.Claim(ctx, key, c) })
}

// Renew implements [lock.Store].
func (d *disturbed) Renew(ctx context.Context, key string, c lock.Claim) (ok bool, err error) {
	if !d.meets(ctx, Renew, key) {
		return d.Store.Renew(ctx, key, c)
	}
	c.Fingerprint = bytes.Clone(c.Fingerprint)
	return false, d.fault(ctx, Renew, func(ctx context.Context) { _, _ = d.Store.Renew(ctx, key, c) })
}

// Settle implements [lock.Store].
func (d *disturbed) Settle(ctx context.Context, key string, c lock.Claim, receipt []byte, keep time.Duration) (ok bool, err error) {
	if !d.meets(ctx, Settle, key) {
		return d.Store.Settle(ctx, key, c, receipt, keep)
	}
	c.Fingerprint, receipt = bytes.Clone(c.Fingerprint), bytes.Clone(receipt)
	return false, d.fault(ctx, Settle, func(ctx context.Context) { _, _ = d.Store.Settle(ctx, key, c, receipt, keep) })
}

// Amend implements [lock.Amender], if the store within is one, without faults.
func (d *disturbed) Amend(ctx context.Context, key, token string, from, to []byte) (ok bool, err error) {
	if within, is := d.Store.(lock.Amender); is {
		return within.Amend(ctx, key, token, from, to)
	}
	return false, lock.Describe(d.Store).NoAmends
}

// ClaimSet implements [lock.SetClaimer], if the inner store does. For faults, it counts as a Claim of
// its first key.
func (d *disturbed) ClaimSet(ctx context.Context, keys []string, claims []lock.Claim) (inTheWay lock.Entry, err error) {
	sets, is := d.Store.(lock.SetClaimer)
	switch {
	case !is:
		return lock.Entry{}, errNoSets
	case !d.meets(ctx, Claim, keys[0]):
		return sets.ClaimSet(ctx, keys, claims)
	}
	keys, claims = slices.Clone(keys), slices.Clone(claims)
	return lock.Entry{}, d.fault(ctx, Claim, func(ctx context.Context) { _, _ = sets.ClaimSet(ctx, keys, claims) })
}

var errNoSets = fmt.Errorf("latchtest: the store within claims no sets at once: %w", errors.ErrUnsupported)

// Release implements [lock.Store].
func (d *disturbed) Release(ctx context.Context, key string, c lock.Claim) (ok bool, err error) {
	if !d.meets(ctx, Release, key) {
		return d.Store.Release(ctx, key, c)
	}
	c.Fingerprint = bytes.Clone(c.Fingerprint)
	return false, d.fault(ctx, Release, func(ctx context.Context) { _, _ = d.Store.Release(ctx, key, c) })
}
