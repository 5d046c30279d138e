package lock

import (
	"context"
	"errors"

	"github.com/httplatch/httplatch/internal/unwind"
	"github.com/httplatch/httplatch/lock/internal/cleanup"
	"github.com/httplatch/httplatch/lock/internal/clock"
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
		return false, nil
	}
	leases := make([]*Lease, len(keys))
	for i, key := range keys {
		leases[i] = l.newLease(ctx, key)
		leases[i].parent = parent //nolint:fatcontext // a set has as many contexts as keys
		parent = leases[i].Context()
	}
	c := &setClaim{l, s, leases, clock.Now()}
	if entered, err := c.enter(ctx); !entered {
		return err != nil, err
	}
	unwind.RunOrCleanUp(func() { done, err = c.send(ctx) }, func() {
		for _, e := range leases[len(s.leases):] {
			e.endUnreturned()
		}
	})
	for range leases[len(s.leases):] {
		l.core.owners.Leave()
	}
	return done, err
}

// setClaim claims the keys of a set.
type setClaim struct {
	*Locker

	set    *Set
	leases []*Lease
	began  clock.Moment
}

// enter gives the leases their keys in this process, all or none, and waits for none of them. A
// caller that does not wait is refused if one of them is held.
func (c *setClaim) enter(ctx context.Context) (entered bool, refused error) {
	core := c.core
	for i, e := range c.leases {
		taken, owner := local.TakenUndecided, ""
		if core.owners.Enter() {
			if taken, owner = core.keys.TryEnter((*holder)(e)); taken == local.NotTaken {
				continue
			}
			core.owners.Leave()
		}
		for _, entered := range c.leases[:i] {
			core.keys.Leave((*holder)(entered))
			core.owners.Leave()
		}
		if taken == local.TakenUndecided || c.cfg.wait > 0 {
			return false, nil
		}
		err := heldBy(e, owner)
		c.reportRefusal(ctx, e, c.began, err)
		return false, err
	}
	return true, nil
}

// send asks the store for all keys.
func (c *setClaim) send(ctx context.Context) (done bool, err error) {
	core := c.core
	c.checkIfDue(c.began)
	r := &setRequest{store: core.sets, keys: make([]string, len(c.leases)), claims: make([]Claim, len(c.leases))}
	call := new(send.Call)
	for i, e := range c.leases {
		e.claim.token = core.tokens.Next()
		if !core.inProcess {
			e.claim.call = call
		}
		r.keys[i], r.claims[i] = string(e.entry), e.claimOf(c.firstLease(&e.identity))
	}
	sent := clock.Now()
	err = core.ask(ctx, call, send.Terms{Budget: c.cfg.budget}, r)
	switch {
	case errors.Is(err, errors.ErrUnsupported) && !call.Unanswered():
		core.leaveAll(c.leases...)
		return false, nil
	case err != nil:
		c.logFailure(ctx, err)
		for _, e := range c.leases {
			c.leave(ctx, e, err)
		}
		c.reportRefusal(ctx, c.leases[0], c.began, err)
		return true, err
	case r.inTheWay.State == Free:
		return true, c.startAll(ctx, sent)
	}
	return c.refuseAll(ctx, &r.inTheWay)
}

// leaveAll gives up the keys of leases that have not started. Callers that wait for one of the
// claims get no decision: the next of them claims the key itself.
func (c *core) leaveAll(leases ...*Lease) {
	for _, e := range leases {
		e.cleanUpClaim()
		c.keys.Leave((*holder)(e))
	}
}

// startAll starts the leases, and appends them to the set. It stops at a lease that is over
// already: the set then has the leases before it.
func (c *setClaim) startAll(ctx context.Context, sent clock.Moment) error {
	for _, e := range c.leases {
		e.claim.orphaned = true // until its lease has started
	}
	for i, e := range c.leases {
		e.claim.orphaned = false
		if err := c.granted(ctx, e, 0, sent); err != nil {
			c.core.leaveAll(c.leases[i:]...)
			c.reportRefusal(ctx, e, sent, err)
			return err
		}
		c.set.leases = append(c.set.leases, e)
	}
	if c.core.owners.Closed() {
		return ErrClosed // Close may have listed the leases before these were granted
	}
	return nil
}

// refuseAll ends a claim that was refused because of the entry inTheWay. done is false, and the
// keys are claimed in order, unless the entry certainly belongs to a holder and the caller does
// not wait for its end.
func (c *setClaim) refuseAll(ctx context.Context, inTheWay *Entry) (done bool, err error) {
	var refused *Lease
	for _, e := range c.leases {
		if string(e.entry) == inTheWay.Key {
			refused = e
		}
	}
	var record *record // a lock has none
	reason := record.refusal(inTheWay.State, nil, false)
	own := inTheWay.State != Settled && c.core.cleaner.FateOf(inTheWay.Token) != cleanup.NotKnown
	if refused == nil || own || c.cfg.wait > 0 && errors.Is(reason, ErrHeld) {
		c.core.leaveAll(c.leases...)
		return false, nil
	}
	inTheWay.Key = refused.label()
	refused.observed.noteFound(inTheWay.Owner)
	err = &RefusedError{Reason: reason, Entry: *inTheWay}
	for _, e := range c.leases {
		if e == refused {
			c.leave(ctx, e, err)
		} else {
			c.core.leaveAll(e) // the answer does not concern its key
		}
	}
	c.reportRefusal(ctx, refused, c.began, err)
	return true, err
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
