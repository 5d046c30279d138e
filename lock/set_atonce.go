package lock

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/httplatch/httplatch/lock/internal/clock"
	"github.com/httplatch/httplatch/lock/internal/duty"
	"github.com/httplatch/httplatch/lock/internal/local"
	"github.com/httplatch/httplatch/lock/internal/send"
)

// claimAtOnce takes the keys of s in one call to the store. If done is false, it has taken no key, and
// the caller has to claim the keys one after the other: because the store cannot claim them at
// once, because the claim or the release of one of them is pending in this process, or because
// the caller waits for a holder.
//
// Each key has its own token. So after the grant, each lease is renewed, recovered and cleaned up
// like the lease of a single key.
func (l *Locker) claimAtOnce(ctx, parent context.Context, s *Set) (done bool, err error) {
	// Each key's own claim draws its fence, and WithFailOpen decides about each key by itself.
	if l.core.sets == nil || len(s.keys) < 2 || l.cfg.fenced || l.cfg.failOpen || ctx.Err() != nil {
		return false, nil //nolint:nilerr // the first claim in order says that the caller has left
	}
	c := &setClaim{Locker: l, set: s, leases: make([]*Lease, len(s.keys)), began: clock.Now()}
	for i, key := range s.keys {
		c.leases[i] = new(Lease).init(ctx, l, entryName(key))
		c.leases[i].set = s
		c.leases[i].parent = parent //nolint:fatcontext // a set has as many contexts as keys
		parent = c.leases[i].Context()
	}
	err = c.take(ctx)
	for _, e := range c.leases[len(s.leases):] { // before observers are called: other callers wait for the keys
		if e == c.refused || !isRefusal(err) {
			e.discard(ctx, err)
		} else {
			e.discard(ctx, nil) // a refusal concerns the callers that wait for its own key only
		}
	}
	if c.refused != nil {
		l.reportRefusal(ctx, c.refused, c.began, err)
	}
	if errors.Is(err, errors.ErrUnsupported) {
		return false, nil
	}
	return true, err
}

// setClaim claims the keys of a set.
type setClaim struct {
	*Locker

	set     *Set
	leases  []*Lease // that have their keys in this process
	began   clock.Moment
	refused *Lease // to which the error of the claim belongs
}

var errInOrder = fmt.Errorf("lock: the keys have to be claimed one after the other: %w", errors.ErrUnsupported)

// take claims the keys, and gives the leases to the set.
func (c *setClaim) take(ctx context.Context) error {
	err := c.enter()
	if err != nil {
		return err
	}
	sent := clock.Now()
	inTheWay, err := c.send(ctx, sent)
	if err == nil && c.core.outage.on.Load() {
		c.logServed(ctx)
	}
	switch {
	case errors.Is(err, errors.ErrUnsupported):
		return err
	case err != nil:
		c.logFailure(ctx, err)
		c.refused = c.leases[0]
		return err
	case inTheWay.State != Free:
		return c.refusal(&inTheWay)
	}
	return c.start(ctx, sent)
}

// enter gives the leases their keys in this process, all or none, and waits for none of them. A
// caller that does not wait is refused if one of them is held.
func (c *setClaim) enter() error {
	for i, e := range c.leases {
		if !c.core.active.Enter() {
			c.leases = c.leases[:i]
			return errInOrder
		}
		taken, owner := e.local.TryEnter()
		if taken == local.NotTaken {
			continue
		}
		c.leases = c.leases[:i]
		c.core.active.Leave()
		if taken == local.TakenUndecided || c.cfg.wait > 0 {
			return errInOrder
		}
		c.refused = e
		return heldBy(e, owner)
	}
	return nil
}

// send asks the store for all keys.
func (c *setClaim) send(ctx context.Context, sent clock.Moment) (inTheWay Entry, err error) {
	keys, claims := make([]string, len(c.leases)), make([]Claim, len(c.leases))
	first := c.leases[0].newClaim("", sent)
	for i, e := range c.leases {
		e.claim = c.leases[0].claim
		e.claim.token = c.core.tokens.next()
		keys[i], claims[i] = string(e.entry), first
		claims[i].Token = e.claim.token
	}
	claim := call{quiet: true, do: func(ctx context.Context) (err error) {
		inTheWay, err = c.core.sets.ClaimSet(ctx, keys, claims)
		return err
	}}
	err = c.call(ctx, send.Terms{Budget: c.cfg.budget}, &claim)
	for _, e := range c.leases {
		e.claim.sent = claim.sent
	}
	return inTheWay, err
}

// start starts the leases, and gives them to the set. It stops at a lease that is over already.
func (c *setClaim) start(ctx context.Context, sent clock.Moment) error {
	for _, e := range c.leases {
		e.claim.orphaned = true // until its lease has started
	}
	for _, e := range c.leases {
		e.claim.orphaned = false
		if err := c.granted(ctx, e, 0, sent, EventClaimed); err != nil {
			c.refused = e
			return err
		}
		c.set.leases = append(c.set.leases, e)
	}
	if c.core.closing.Err() != nil {
		return ErrClosed // Close may have listed the leases before these were granted
	}
	return nil
}

// refusal returns the error of a claim with the entry inTheWay. The keys are claimed in order, unless
// the entry certainly belongs to a holder and the caller does not wait for its end.
func (c *setClaim) refusal(inTheWay *Entry) error {
	at := slices.IndexFunc(c.leases, func(e *Lease) bool { return string(e.entry) == inTheWay.Key })
	var lock *Run
	reason := lock.refusal(inTheWay.State, nil, false)
	own := inTheWay.State != Settled && c.core.duties.FateOf(inTheWay.Token) != duty.NotKnown
	if at < 0 || own || c.cfg.wait > 0 && errors.Is(reason, ErrHeld) {
		return errInOrder
	}
	c.refused = c.leases[at]
	inTheWay.Key = c.refused.label()
	c.refused.observed.noteFound(inTheWay.Owner)
	return &RefusedError{Reason: reason, Entry: *inTheWay}
}
