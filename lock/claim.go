package lock

import (
	"context"
	"fmt"
	"time"

	"github.com/httplatch/httplatch/lock/internal/clock"
	"github.com/httplatch/httplatch/lock/internal/duty"
	"github.com/httplatch/httplatch/lock/internal/local"
	"github.com/httplatch/httplatch/lock/internal/send"
)

// leastFirst is the first lease of a lock in a store that outlives this process, unless
// WithLease is shorter. After this time, the keys of a killed process are free. The first
// renewal asks for the whole lease.
const leastFirst = 5 * time.Second

// newClaim returns a claim of e under token, which is sent after the moment at, and begins a check of the store if one
// is due. Once asks for the whole lease: its record outlives the lease, and a short transaction needs no renewal.
func (e *Lease) newClaim(token string, at clock.Moment) Claim {
	l, c := e.locker, &e.claim
	if l.core.about.Check != nil && int64(at) >= l.core.checkDue.Load() {
		l.startCheck(at)
	}
	lease := l.cfg.lease
	if e.run == nil && !l.core.inProcess {
		lease = min(lease, max(leastFirst, 4*l.cfg.budget))
	}
	lease, c.until, c.renewAt = e.span(lease, at)
	c.token, c.lastEnd, c.capped = token, at.Add(l.cfg.maxHold), lease == l.cfg.maxHold
	return e.claimOf(lease)
}

// maxRounds bounds the claims of one attempt at a key: one, another for a takeover or after
// the removal of an orphan, and some for entries that ended between two answers.
const maxRounds = 4

// claim asks the store for e's key until the store grants or refuses it, from the moment at
// until deadline.
func (l *Locker) claim(ctx context.Context, e *Lease, at, deadline clock.Moment) error {
	for range maxRounds {
		// A token is used for one round only: after an answered refusal, the
		// time from which its validity counts would lie too far back.
		e.claim.takeover = e.run != nil && e.run.replaces != ""
		// Validity counts from at, before the first send: whichever send the store
		// applied, its lease did not begin before this moment.
		claim := call{name: callClaim, key: e.entry, claim: e.newClaim(l.core.tokens.next(), at)}
		err := l.call(ctx, send.Terms{Budget: time.Duration(deadline - at)}, &claim)
		if e.claim.flight, e.claim.unanswered = claim.sent.Flight, claim.sent.Unanswered; err != nil {
			return err
		}
		if l.core.outage.on.Load() {
			l.logServed(ctx)
		}

		if claim.entry.State == Held && claim.entry.Token == e.claim.token {
			return l.granted(ctx, e, claim.entry.Fence, at, EventClaimed)
		}
		if again, err := l.judge(ctx, e, &claim.entry, deadline); !again {
			return err
		}
		e.cleanUpClaim()
		if ctx.Err() != nil {
			return leftBetween(ctx)
		}
		if at = clock.Now(); at >= deadline {
			break
		}
	}
	return fmt.Errorf("%w: the key changed hands during the claim", ErrUnavailable)
}

// judge acts on the entry in the way of a claim. again says that the key is to be claimed again.
func (l *Locker) judge(ctx context.Context, e *Lease, entry *Entry, deadline clock.Moment) (again bool, err error) {
	replaced := e.run != nil && e.run.replacesHeld && e.run.replaces == entry.Token // by a store that does not know ReplacesHeld
	if e.run != nil {
		e.run.replaces, e.run.replacesHeld, e.run.attempt = "", false, 1 // the entry has changed since the last claim
	}
	entry.Key = e.Key()
	e.observed.noteFound(entry.Owner)
	fate := duty.NotKnown
	if entry.State != Settled {
		fate = l.core.duties.FateOf(entry.Token)
	}
	switch {
	case entry.State == Free:
		// The entry in the way ended between the claim and its reading.
		return true, nil
	case fate != duty.NotKnown && ctx.Err() != nil:
		return false, leftBetween(ctx)
	case fate == duty.Dead:
		// An orphan of this Locker is in the way. Its claim was never granted, so it is
		// removed at once. Other entries stay: a token that this process does not know may
		// belong to a living holder.
		release := call{name: callRelease, key: e.entry, claim: Claim{Token: entry.Token}}
		err = l.call(ctx, send.Terms{Budget: deadline.Until()}, &release)
		if release.ok {
			l.core.recent.note(EventReaped, e.Key())
			l.emit(ctx, e, EventReaped, 0, nil)
		}
		return err == nil, err
	case fate == duty.LostTakeover && !replaced && e.run.refusal(Abandoned, entry.Fingerprint, l.cfg.rerun) == nil:
		// A takeover of this Locker was applied and not answered. No work has begun under its token, so the claim
		// that replaces it keeps its attempt number.
		e.run.replaces, e.run.replacesHeld, e.run.attempt = entry.Token, true, entry.Attempt
		return true, nil
	}
	if reason := e.run.refusal(entry.State, entry.Fingerprint, l.cfg.rerun); reason != nil {
		return false, &RefusedError{Reason: reason, Entry: *entry}
	}
	// The claim names the entry: if two callers see it, only one takes it over.
	e.run.replaces, e.run.attempt = entry.Token, entry.Attempt+1
	return true, nil
}

// leftBetween returns the error of a claim whose caller left before its next send. The last
// answer does not decide the claim.
func leftBetween(ctx context.Context) error {
	return publicError(send.GoneError{Cause: context.Cause(ctx)}, false)
}

// granted makes e a running lease, unless it is over already. sent is the moment before the first send of the
// claim, from which the validity counts. as is EventClaimed or EventResumed.
func (l *Locker) granted(ctx context.Context, e *Lease, fence int64, sent clock.Moment, as EventKind) error {
	c, granted := l.core, clock.Now()
	took := time.Duration(granted - sent)
	if granted >= e.claim.until {
		// This process was paused. Nothing has run under the lease, so the entry is an orphan.
		e.claim.orphaned = true
		return fmt.Errorf("%w: the claim was answered after its lease was over", ErrUnavailable)
	}
	if l.cfg.detached {
		e.parent = context.WithoutCancel(e.parent)
	}
	e.claim.fence, e.claim.grantedAt = fence, granted
	e.validity.Start(&e.local, e.claim.until, e.claim.renewAt, e.claim.capped)
	e.local.Grant(e.claim.renewAt, func() local.Decision { return grantOf(e) }) // last: from now on, other goroutines read the lease
	switch {
	case e.claim.unanswered:
		c.recent.note(EventRecovered, e.Key())
		if as == EventClaimed {
			as = EventRecovered
		}
	case e.claim.takeover:
		as = EventTakenOver
		c.recent.note(as, e.Key())
		l.logTakenOver(ctx, e)
	}
	if e.run == nil {
		c.names.note(e.entry)
	}
	l.emit(ctx, e, as, took, nil)
	return nil
}
