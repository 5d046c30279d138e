package lock

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/httplatch/httplatch/lock/internal/duty"
	"github.com/httplatch/httplatch/lock/internal/send"
)

// cleanUpClaim gives the claim to the clean-up if it may have left an entry without a holder,
// or may still leave one. A takeover is not removed: its entry shows that the outcome of the
// earlier run is unknown. See Locker.adopt.
func (e *Lease) cleanUpClaim() {
	flight := e.claim.flight
	if e.claim.orphaned || flight != nil && flight.Doubt() != (send.Doubt{}) {
		e.addOrphan(EventReaped, e.lingers())
	}
}

// lingers returns how long an entry of e outlives its lease: one of Once says for that time that the
// outcome is unknown.
func (e *Lease) lingers() time.Duration {
	if e.run != nil {
		return e.locker.cfg.keep
	}
	return 0
}

// addOrphan lets the clean-up remove the entry of e's last claim, which has no holder and outlives its lease
// by linger. It reports the removal as an event of this kind. A release without an answer may have removed the
// entry already. It reads nothing of e later, because e may be on its next claim by then.
func (e *Lease) addOrphan(as EventKind, linger time.Duration) {
	l, ctx, event := e.locker, context.WithoutCancel(e.parent), e.event(as, 0, nil)
	event.Left = 0
	began := time.Now()
	if as == EventReleased {
		began = e.claim.grantedAt.Wall()
	}
	o := &duty.Orphan{
		Subject:  e.subject(as),
		Flight:   e.claim.flight,
		Answered: e.claim.orphaned || as == EventReleased,
		Takeover: e.claim.takeover,
		Lease:    l.cfg.lease,
		Linger:   linger,
		Dropped:  func() { l.warn(ctx, nil, warnDropped, slog.Int("backlog", l.core.duties.Stats().Count)) },
	}
	unanswered := as == EventReleased && e.end.unanswered
	o.Remove = func() (found bool, err error) {
		terms := send.Terms{Budget: l.cfg.budget, Lasting: true, Once: true, Cleaning: true}
		release := call{name: callRelease, key: o.Entry, claim: Claim{Token: o.Token}}
		if err = l.call(ctx, terms, &release); err != nil {
			unanswered = unanswered || event.Kind == EventReleased && errors.Is(err, ErrUnknown)
			return false, err
		}
		if release.ok || unanswered {
			if unanswered = false; event.Kind == EventReaped {
				l.core.recent.note(EventReaped, o.Key)
			}
			event.Took = time.Since(began)
			l.Report(ctx, event)
			event.Kind = EventReaped // if an entry lands later
		}
		return release.ok, nil
	}
	l.core.duties.AddOrphan(o)
}

// subject describes a clean-up of e that will end with an event of this kind.
func (e *Lease) subject(kind EventKind) duty.Subject {
	return duty.Subject{Key: e.label(), Entry: string(e.entry), Token: e.claim.token, Owner: e.owner, Kind: string(kind)}
}
