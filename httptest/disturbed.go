package latchtest

import (
	"bytes"
	"context"
	"time"

	"github.com/httplatch/httplatch/lock"
)

// disturbed is a store some of whose calls meet a fault.
type disturbed struct {
	lock.Store
	hits  func(op Op, key string) bool // asked once for every call
	fault fault
	lag   time.Duration
}

// disturb returns s with the calls that hits picks meeting f, after whose
// return they may take effect for another lag.
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

// Describe is that of the store within, with later effects, and never of one whose calls
// need no bounding.
func (d *disturbed) Describe() lock.Description {
	about := lock.Describe(d.Store)
	about.Local = false
	about.MaxLag += d.lag
	return about
}

// meets reports whether a call meets the fault. One whose context has ended is
// never sent, so there is nothing to lose.
func (d *disturbed) meets(ctx context.Context, op Op, key string) bool {
	return ctx.Err() == nil && d.hits(op, key)
}

// Claim is part of [lock.Store]. Like the other methods it copies slices before
// the fault, because the call may be made after it has returned.
func (d *disturbed) Claim(ctx context.Context, key string, c lock.Claim) (lock.Entry, error) {
	if !d.meets(ctx, Claim, key) {
		return d.Store.Claim(ctx, key, c)
	}
	c.Fingerprint = bytes.Clone(c.Fingerprint)
	return lock.Entry{}, d.fault(ctx, Claim, func(ctx context.Context) { _, _ = d.Store.Claim(ctx, key, c) })
}

// Renew is part of [lock.Store].
func (d *disturbed) Renew(ctx context.Context, key string, c lock.Claim) (ok bool, err error) {
	if !d.meets(ctx, Renew, key) {
		return d.Store.Renew(ctx, key, c)
	}
	c.Fingerprint = bytes.Clone(c.Fingerprint)
	return false, d.fault(ctx, Renew, func(ctx context.Context) { _, _ = d.Store.Renew(ctx, key, c) })
}

// Settle is part of [lock.Store].
func (d *disturbed) Settle(ctx context.Context, key string, c lock.Claim, receipt []byte, keep time.Duration) (ok bool, err error) {
	if !d.meets(ctx, Settle, key) {
		return d.Store.Settle(ctx, key, c, receipt, keep)
	}
	c.Fingerprint, receipt = bytes.Clone(c.Fingerprint), bytes.Clone(receipt)
	return false, d.fault(ctx, Settle, func(ctx context.Context) { _, _ = d.Store.Settle(ctx, key, c, receipt, keep) })
}

// Release is part of [lock.Store].
func (d *disturbed) Release(ctx context.Context, key string, c lock.Claim) (ok bool, err error) {
	if !d.meets(ctx, Release, key) {
		return d.Store.Release(ctx, key, c)
	}
	c.Fingerprint = bytes.Clone(c.Fingerprint)
	return false, d.fault(ctx, Release, func(ctx context.Context) { _, _ = d.Store.Release(ctx, key, c) })
}
