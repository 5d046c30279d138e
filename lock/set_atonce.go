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
	began := clock.Now()
	var leases []*Lease // that have their keys in this process
	var refused *Lease  // to which err belongs
	for _, key := range s.keys {
		e := new(Lease).init(ctx, l, key)
		e.set, e.parent = s.keys, parent
		parent = e.Context() //nolint:fatcontext // a set has as many contexts as keys
		if !l.core.active.Enter() {
			err = errInOrder
			break
		}
		taken, owner := e.local.TryEnter()
		if taken == local.NotTaken {
			leases = append(leases, e)
			continue
		}
		l.core.active.Leave()
		if err = errInOrder; taken == local.TakenHeld && l.cfg.wait == 0 {
			refused, err = e, heldBy(e, owner)
		}
		break
	}
	if err == nil {
		refused, err = l.claimSet(ctx, s, leases)
	}
	for _, e := range leases[len(s.leases):] { // before observers are called: other callers wait for the keys
		if e == refused || !isRefusal(err) {
			e.discard(ctx, err)
		} else {
			e.discard(ctx, nil) // a refusal concerns the callers that wait for its own key only
		}
	}
	if refused != nil {
		l.reportRefusal(ctx, refused, began, err)
	}
	if errors.Is(err, errors.ErrUnsupported) {
		return false, nil
	}
	return true, err
}

var errInOrder = fmt.Errorf("lock: the keys have to be claimed one after the other: %w", errors.ErrUnsupported)

// claimSet claims the keys of leases in one call, and gives the leases that are granted to s. It stops at a lease that is
// over already. refused is the lease to which err belongs.
func (l *Locker) claimSet(ctx context.Context, s *Set, leases []*Lease) (refused *Lease, err error) {
	sent := clock.Now()
	keys, claims := make([]string, len(leases)), make([]Claim, len(leases))
	first := leases[0].newClaim("", sent) // for all: inside a run, the time left shrinks meanwhile
	for i, e := range leases {
		e.claim = leases[0].claim
		e.claim.token = l.core.tokens.next()
		keys[i], claims[i] = e.entry, first
		claims[i].Token = e.claim.token
	}
	var inTheWay Entry
	claim := call{quiet: true, do: func(ctx context.Context) (err error) {
		inTheWay, err = l.core.sets.ClaimSet(ctx, keys, claims)
		return err
	}}
	err = l.call(ctx, send.Terms{Budget: l.cfg.budget}, &claim)
	for _, e := range leases {
		e.claim.flight, e.claim.unanswered = claim.sent.Flight, claim.sent.Unanswered
	}
	switch {
	case errors.Is(err, errors.ErrUnsupported):
		return nil, err
	case err != nil:
		l.logFailure(ctx, err)
		return leases[0], err
	case l.core.outage.on.Load():
		l.logServed(ctx)
	}
	if inTheWay.State != Free {
		at := slices.IndexFunc(leases, func(e *Lease) bool { return e.entry == inTheWay.Key })
		var lock *Run
		reason := lock.refusal(inTheWay.State, nil, false)
		own := inTheWay.State != Settled && l.core.duties.FateOf(inTheWay.Token) != duty.NotKnown
		if at < 0 || own || l.cfg.wait > 0 && errors.Is(reason, ErrHeld) {
			return nil, errInOrder // the entry may have no holder, or the caller waits for it
		}
		refused = leases[at]
		inTheWay.Key = refused.Key()
		refused.observed.noteFound(inTheWay.Owner)
		return refused, &RefusedError{Reason: reason, Entry: inTheWay}
	}
	for _, e := range leases {
		e.claim.orphaned = true // until its lease has started
	}
	for _, e := range leases {
		e.claim.orphaned = false
		if err = l.granted(ctx, e, 0, sent, EventClaimed); err != nil {
			return e, err
		}
		s.leases = append(s.leases, e)
	}
	if l.core.closing.Err() != nil {
		err = ErrClosed // Close may have listed the leases before these were granted
	}
	return nil, err
}
