package lock

import (
	"context"
	"time"

	"github.com/httplatch/httplatch/lock/event"
	"github.com/httplatch/httplatch/lock/internal/cleanup"
	"github.com/httplatch/httplatch/lock/internal/send"
)

// orphan is a claim of a lease that may leave an entry without a holder.
type orphan struct {
	cleanup.Orphan

	locker *Locker
	ctx    context.Context //nolint:containedctx // values for observers and loggers; never canceled
	event  Event           // for observers; a copy, since the lease may be on its next claim by then
}

// addOrphan removes what e's last claim has left, or may leave yet.
func (e *Lease) addOrphan() {
	o := &orphan{
		locker: e.locker,
		ctx:    context.WithoutCancel(e.parent),
		event:  e.event(event.Reaped, 0, nil),
	}
	o.Orphan = cleanup.Orphan{
		Subject:  e.cleanupOf(event.Reaped),
		Remover:  o,
		Flight:   e.claim.call.Flight(),
		Answered: e.claim.orphaned,
		Takeover: e.claim.takeover,
		Began:    time.Now(),
	}
	if e.record != nil {
		o.Linger = e.locker.cfg.keep // the entry says for that time that the outcome is unknown
	}
	e.locker.core.cleaner.Add(&o.Orphan)
}

// cleanupOf describes a clean-up of e that will end with an event of this kind.
func (e *Lease) cleanupOf(kind event.Kind) cleanup.Subject {
	return cleanup.Subject{Key: e.label(), Entry: string(e.entry), Token: e.claim.token, Owner: e.claimant(), Kind: string(kind)}
}

// Remove implements cleanup.Remover.
func (o *orphan) Remove() (found bool, err error) {
	l := o.locker
	terms := send.Terms{Budget: l.cfg.budget, Lasting: true, Once: true, Cleaning: true}
	release := &endRequest{store: l.core.store, key: o.Entry, claim: Claim{Token: o.Token}}
	err = l.ask(o.ctx, terms, release)
	return release.ok, err
}

// Removed implements cleanup.Remover.
func (o *orphan) Removed() {
	o.locker.core.recent.note(event.Reaped, o.Key)
	reaped := o.event
	reaped.Took = time.Since(o.Began)
	o.locker.announce(o.ctx, reaped)
}

// Dropped implements cleanup.Remover.
func (o *orphan) Dropped() { o.locker.logDropped(o.ctx, o.locker.core.cleaner.Count()) }
