package lock

import (
	"context"
	"time"

	"github.com/httplatch/httplatch/lock/internal/cleanup"
	"github.com/httplatch/httplatch/lock/internal/send"
)

// cleanUpClaim gives the claim to the cleaner if it may have left an entry without a holder,
// or may still leave one. A takeover is not removed: its entry shows that the outcome of the
// earlier run is unknown. See Locker.adopt.
func (e *Lease) cleanUpClaim() {
	if e.claim.mayBeOrphaned() {
		e.addOrphan()
	}
}

// mayBeOrphaned reports whether the last claim may have left an entry without a holder, or may
// still leave one.
func (c *leaseClaim) mayBeOrphaned() bool {
	flight := c.call.Flight()
	return c.orphaned || flight != nil && flight.Doubt() != (send.Doubt{})
}

// orphan is the claim of a lease whose entry, if there is one, has no holder.
type orphan struct {
	cleanup.Orphan

	locker *Locker
	ctx    context.Context //nolint:containedctx // values for observers and loggers; never canceled
	event  Event           // for observers; a copy, since the lease may be on its next claim by then
}

// addOrphan lets the cleaner remove the entry of e's last claim, which has no holder.
func (e *Lease) addOrphan() {
	if e.record != nil {
		e.addOrphanFor(e.locker.cfg.keep) // the entry says for that time that the outcome is unknown
		return
	}
	e.addOrphanFor(0)
}

// addOrphanFor is addOrphan for an entry that outlives a lease by linger.
func (e *Lease) addOrphanFor(linger time.Duration) {
	o := &orphan{
		locker: e.locker,
		ctx:    context.WithoutCancel(e.parent),
		event:  e.event(EventReaped, 0, nil),
	}
	o.Orphan = cleanup.Orphan{
		Subject:  cleanupOf(e, EventReaped),
		Remover:  o,
		Flight:   e.claim.call.Flight(),
		Answered: e.claim.orphaned,
		Takeover: e.claim.takeover,
		Linger:   linger,
		Began:    time.Now(),
	}
	e.locker.core.cleaner.Add(&o.Orphan)
}

// cleanupOf describes a clean-up of e that will end with an event of this kind.
func cleanupOf(e *Lease, kind EventKind) cleanup.Subject {
	return cleanup.Subject{Key: e.label(), Entry: string(e.entry), Token: e.claim.token, Owner: e.claimOwner(), Kind: string(kind)}
}

// Remove implements cleanup.Remover.
func (o *orphan) Remove() (found bool, err error) {
	l := o.locker
	terms := send.Terms{Budget: l.cfg.budget, Lasting: true, Once: true, Cleaning: true}
	release := &endRequest{store: l.core.store, key: o.Entry, claim: Claim{Token: o.Token}}
	err = l.askLogged(o.ctx, terms, release)
	return release.ok, err
}

// Removed implements cleanup.Remover.
func (o *orphan) Removed() {
	o.locker.core.recent.note(EventReaped, o.Key)
	reaped := o.event
	reaped.Took = time.Since(o.Began)
	o.locker.announce(o.ctx, reaped)
}

// Dropped implements cleanup.Remover.
func (o *orphan) Dropped() { o.locker.logDropped(o.ctx, o.locker.core.cleaner.Count()) }
