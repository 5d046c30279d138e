package latchtest

import (
	"bytes"
	"context"
	"crypto/rand"
	"fmt"
	"sync"
	"time"

	"github.com/httplatch/httplatch/lock"
)

// rule is one rule of the contract.
type rule struct {
	name  string
	words string
	check func(p *probe)
}

func (r rule) run(t reporter, lease time.Duration, store lock.Store) {
	t.Helper()
	r.check(&probe{reporter: t, store: store, rule: r, short: lease, long: max(5*time.Minute, 20*lease)})
}

// reporter is the part of testing.T that a rule uses. The tests of this package implement
// it to watch rules fail.
type reporter interface {
	Helper()
	Context() context.Context
	Fatalf(format string, args ...any)
	Skipf(format string, args ...any)
}

// probe is a store under the test of one rule.
//
// Rules claim with the lease short if the lease has to end, and with long if it has to last, so
// that no rule fails on a machine that stalls for a lease or more, or whose clock is set a minute ahead.
type probe struct {
	reporter
	store lock.Store
	rule  rule
	short time.Duration
	long  time.Duration

	claims sync.Map // the last lock.Claim of each key and token
}

func (p *probe) failf(format string, args ...any) {
	p.Helper()
	p.Fatalf("%s\nrule: %s", fmt.Sprintf(format, args...), p.rule.words)
}

// key returns a key that was never used.
func (*probe) key() string { return "latchtest=" + rand.Text() }

// claimOf returns a claim with every field that any store accepts.
func (*probe) claimOf(token string, lease, linger time.Duration) lock.Claim {
	return lock.Claim{
		Token:       token,
		Attempt:     1,
		Fingerprint: []byte("fingerprint of " + token),
		Owner:       "owner of " + token,
		Lease:       lease,
		Linger:      linger,
	}
}

// callTimeout ends a call that would otherwise hang the test.
const callTimeout = 30 * time.Second

func (p *probe) within() (context.Context, context.CancelFunc) {
	return context.WithTimeout(p.Context(), callTimeout)
}

// noReceipts returns the reason if the store keeps no receipts, else nil.
func (p *probe) noReceipts() error { return lock.Describe(p.store).NoReceipts }

// locksOnly reports whether the store says that it keeps no receipts, and forgets a
// holder whose lease has ended.
func (p *probe) locksOnly() bool { return p.noReceipts() != nil }

// needsReceipts skips the rest of the rule over a store for locks only.
func (p *probe) needsReceipts() {
	p.Helper()
	if err := p.noReceipts(); err != nil {
		p.Skipf("the store is for locks only: %v", err)
	}
}

// asked returns c without the fields that a store for locks only refuses.
func (p *probe) asked(c lock.Claim) lock.Claim {
	p.Helper()
	if c.Replaces != "" {
		p.needsReceipts()
	}
	if p.locksOnly() {
		c.Linger = 0
	}
	return c
}

// receipt returns b if the store keeps receipts. Otherwise it returns the empty receipt of a
// cool-down.
func (p *probe) receipt(b []byte) []byte {
	if p.locksOnly() {
		return nil
	}
	return b
}

// brief returns a short lease, for rules that test the linger after the lease. For a store
// without lingers, the lease itself is long enough for the rule.
func (p *probe) brief() time.Duration {
	if p.locksOnly() {
		return p.long / 4
	}
	return p.short
}

// try claims key and returns the entry afterwards.
func (p *probe) try(key string, c lock.Claim) lock.Entry {
	p.Helper()
	ctx, cancel := p.within()
	defer cancel()
	c = p.asked(c)
	p.claims.Store([2]string{key, c.Token}, c)
	e, err := p.store.Claim(ctx, key, c)
	if err != nil {
		p.failf("Claim: %v", err)
	}
	return e
}

// claim claims key, which must be granted.
func (p *probe) claim(key string, c lock.Claim) lock.Entry {
	p.Helper()
	e := p.try(key, c)
	p.wantClaim("Claim of a key that was to be had", e, lock.Held, c)
	return e
}

// lapse claims key and waits until the lease is over.
func (p *probe) lapse(key string, c lock.Claim) {
	p.Helper()
	if c.Linger > 0 {
		p.needsReceipts()
	}
	p.claim(key, c)
	p.waitWhile(key, lock.Held)
}

func (p *probe) get(key string) lock.Entry {
	p.Helper()
	ctx, cancel := p.within()
	defer cancel()
	e, err := p.store.Get(ctx, key)
	if err != nil {
		p.failf("Get: %v", err)
	}
	return e
}

func (p *probe) renew(what string, want bool, key string, c lock.Claim) {
	p.Helper()
	ctx, cancel := p.within()
	defer cancel()
	c = p.asked(c)
	p.claims.Store([2]string{key, c.Token}, c)
	ok, err := p.store.Renew(ctx, key, c)
	p.wantOK("Renew "+what, want, ok, err)
}

// claimed returns the last claim of token.
func (p *probe) claimed(key, token string) lock.Claim {
	if c, ok := p.claims.Load([2]string{key, token}); ok {
		return c.(lock.Claim) //nolint:errcheck,forcetypeassert // nothing else is stored
	}
	return lock.Claim{Token: token}
}

func (p *probe) settle(what string, want bool, key, token string, receipt []byte, keep time.Duration) {
	p.Helper()
	ctx, cancel := p.within()
	defer cancel()
	ok, err := p.store.Settle(ctx, key, p.claimed(key, token), p.receipt(receipt), keep)
	p.wantOK("Settle "+what, want, ok, err)
}

func (p *probe) release(what string, want bool, key, token string) {
	p.Helper()
	ctx, cancel := p.within()
	defer cancel()
	ok, err := p.store.Release(ctx, key, p.claimed(key, token))
	p.wantOK("Release "+what, want, ok, err)
}

func (p *probe) wantOK(what string, want, ok bool, err error) {
	p.Helper()
	if err != nil {
		p.failf("%s: %v", what, err)
	}
	if ok != want {
		p.failf("%s = %t, want %t", what, ok, want)
	}
}

// wantFree checks that key is free.
func (p *probe) wantFree(when, key string) {
	p.Helper()
	if e := p.get(key); e.State != lock.Free {
		p.failf("Get %s = %s, want a free key", when, show(e))
	}
}

// wantClaim checks that e has the state and came from c.
func (p *probe) wantClaim(what string, e lock.Entry, state lock.State, c lock.Claim) {
	p.Helper()
	if state == lock.Abandoned {
		p.needsReceipts()
	}
	if e.State != state || e.Token != c.Token || e.Attempt != c.Attempt || e.Owner != c.Owner || !bytes.Equal(e.Fingerprint, c.Fingerprint) {
		p.failf("%s = %s, want %s", what, show(e), show(lock.Entry{
			State: state, Token: c.Token, Attempt: c.Attempt, Owner: c.Owner, Fingerprint: c.Fingerprint,
		}))
	}
}

// wantReceipt checks that e is the receipt of c.
func (p *probe) wantReceipt(what string, e lock.Entry, c lock.Claim, receipt []byte) {
	p.Helper()
	p.wantClaim(what, e, lock.Settled, c)
	receipt = p.receipt(receipt)
	if !bytes.Equal(e.Receipt, receipt) {
		p.failf("%s has the receipt %s, want %s", what, quote(e.Receipt), quote(receipt))
	}
}

// wantLeft checks the time left of e, if it is known: it must be between atLeast and atMost from
// now, apart from the store's rounding.
func (p *probe) wantLeft(what string, e lock.Entry, atLeast, atMost time.Duration) {
	p.Helper()
	if e.Left != 0 && (e.Left < atLeast-p.short || e.Left > atMost+p.short) {
		p.failf("%s has %v left, want between %v and %v", what, e.Left, atLeast, atMost)
	}
}

// waitWhile waits until the entry under key leaves this state.
func (p *probe) waitWhile(key string, state lock.State) lock.Entry {
	p.Helper()
	patience := 10*p.short + 5*time.Second
	for began := time.Now(); ; {
		e := p.get(key)
		if e.State != state {
			return e
		}
		if time.Since(began) > patience {
			p.failf("after %v the entry is still %s", patience, show(e))
		}
		time.Sleep(max(p.short/10, time.Millisecond))
	}
}

// waitOutShort waits until a lease or a keep of the length short is over.
func (p *probe) waitOutShort() { time.Sleep(2*p.short + 2*time.Millisecond) }

// letComplete gives a store time to complete a call on all nodes: a store over several nodes
// returns when a majority has answered. It is for calls that no Locker makes, such as a second
// settle with another receipt.
func (p *probe) letComplete() { time.Sleep(max(p.short/2, 10*time.Millisecond)) }
