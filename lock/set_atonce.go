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

// claimAtOnce takes keys for s in one call to the store. If done is false, it has taken no key, and
// the caller has to claim the keys one after the other: because the store cannot claim them at
// once, because the claim or the release of one of them is pending in this process, or because
// the caller waits for a holder.
//
// Each key has its own token. So after the grant, each lease is renewed, recovered and cleaned up
// like the lease of a single key.
func (l *Locker) claimAtOnce(ctx, parent context.Context, s *Set, keys []string) (done bool, err error) {
	// Each key's own claim draws its fence, and WithFailOpen decides about each key by itself.
	if l.core.sets == nil || len(keys) < 2 || l.cfg.fenced || l.cfg.failOpen || ctx.Err() != nil {
		return false, nil //nolint:nilerr // the first claim in order says that the caller has left
	}
	c := &setClaim{Locker: l, set: s, leases: make([]*Lease, len(keys)), began: clock.Now()}
	for i, key := range keys {
		c.leases[i] = l.newLease(ctx, key)
		c.leases[i].set = s.keys
		c.leases[i].parent = parent //nolint:fatcontext // a set has as many contexts as keys
		parent = c.leases[i].Context()
	}
	err = c.take(ctx)
	c.discard(ctx, err) // before observers are called: other callers wait for the keys
	if c.refused != nil {
		l.reportRefusal(ctx, c.refused, c.began, err)
	}
	if done = !errors.Is(err, errors.ErrUnsupported); !done {
		err = nil
	}
	return done, err
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
	inTheWay, err := c.send(ctx)
	if err == nil {
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

// discard ends the leases that the set does not get. A refusal concerns the callers that wait for its
// own key only.
func (c *setClaim) discard(ctx context.Context, err error) {
	for _, e := range c.leases[len(c.set.leases):] {
		if e != c.refused && isRefusal(err) {
			e.discard(ctx, nil)
		} else {
			e.discard(ctx, err)
		}
	}
}

// enter gives the leases their keys in this process, all or none, and waits for none of them. A
// caller that does not wait is refused if one of them is held.
func (c *setClaim) enter() error {
	for i, e := range c.leases {
		if !c.core.active.Enter() {
			c.leases = c.leases[:i]
			return errInOrder
		}
		taken, owner := c.core.keys.TryEnter(&e.local)
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
func (c *setClaim) send(ctx context.Context) (inTheWay Entry, err error) {
	core := c.core
	c.checkIfDue(c.began)
	r := &setRequest{store: core.sets, keys: make([]string, len(c.leases)), claims: make([]Claim, len(c.leases))}
	call := new(send.Call)
	for i, e := range c.leases {
		e.claim.sent = call
		r.keys[i], r.claims[i] = string(e.entry), c.newClaim(e)
		e.claim.lease, r.claims[i].Lease = c.leases[0].claim.lease, r.claims[0].Lease // inside a run, the time left shrinks meanwhile
	}
	err = core.request(ctx, call, send.Terms{Budget: c.cfg.budget}, r)
	return r.inTheWay, err
}

// start starts the leases, and gives them to the set. It stops at a lease that is over already.
func (c *setClaim) start(ctx context.Context, sent clock.Moment) error {
	for _, e := range c.leases {
		e.claim.orphaned = true // until its lease has started
	}
	for _, e := range c.leases {
		e.claim.orphaned = false
		if err := c.granted(ctx, e, 0, sent); err != nil {
			c.refused = e
			return err
		}
		c.set.leases = append(c.set.leases, e)
	}
	if c.core.active.Closed() {
		return ErrClosed // Close may have listed the leases before these were granted
	}
	return nil
}

// refusal returns the error of a claim with the entry inTheWay. The keys are claimed in order, unless
// the entry certainly belongs to a holder and the caller does not wait for its end.
func (c *setClaim) refusal(inTheWay *Entry) error {
	at := slices.IndexFunc(c.leases, func(e *Lease) bool { return string(e.entry) == inTheWay.Key })
	var record *record // a lock has none
	reason := record.refusal(inTheWay.State, nil, false)
	own := inTheWay.State != Settled && c.core.duties.FateOf(inTheWay.Token) != duty.NotKnown
	if at < 0 || own || c.cfg.wait > 0 && errors.Is(reason, ErrHeld) {
		return errInOrder
	}
	c.refused = c.leases[at]
	inTheWay.Key = c.refused.label()
	c.refused.observed.noteFound(inTheWay.Owner)
	return &RefusedError{Reason: reason, Entry: *inTheWay}
}

// setRequest claims a set of keys.
type setRequest struct {
	store    SetClaimer
	keys     []string
	claims   []Claim
	inTheWay Entry
}

func (r *setRequest) Send(ctx context.Context) (err error) {
	r.inTheWay, err = r.store.ClaimSet(ctx, r.keys, r.claims)
	return err
}
