package lock

import (
	"context"
	"fmt"
	"time"
)

// maxRounds bounds the claims of one attempt at a key: one, one more after an
// entry of an own dead claim was removed or for a takeover, and some for
// entries that ended between two answers.
const maxRounds = 4

// errBacklog: the store has left so many calls unanswered that no more can be
// kept track of.
var errBacklog = fmt.Errorf("%w: too many claims are waiting for their clean-up", ErrUnavailable)

// claim asks the store for e's key until it is granted or refused, from at on
// and until deadline.
func (l *Locker) claim(ctx context.Context, e *Lease, at, deadline moment) error {
	c := l.core
	for range maxRounds {
		if c.reaper.full() {
			l.trouble(ctx, errBacklog)
			return errBacklog
		}
		// A token is used for one round only: after an answered refusal, the
		// time from which its validity counts would lie too far back.
		e.token, e.takeover = c.tokens.next(), e.run != nil && e.run.replaces != ""
		e.unanswered = true // until it has returned: a hook of the store's may end this goroutine
		// Validity counts from before the first send: whichever send the store
		// applied, its lease did not begin before this moment.
		sent := at
		var r reply[Entry]
		l.sendClaim(ctx, e, deadline, &r)
		e.unanswered = r.unanswered
		if r.err != nil {
			l.trouble(ctx, r.err)
			return r.err
		}

		again, err := l.judge(ctx, e, &r.value, sent, deadline)
		if !again {
			return err
		}
		e.abandonClaim()
		if at = now(); at >= deadline {
			break
		}
	}
	return fmt.Errorf("%w: the key changed hands during the claim", ErrUnavailable)
}

// sendClaim sends one claim of e. The reply is not its result: an Entry is long, and
// to copy it from call to call was a twentieth of what a guard costs.
func (l *Locker) sendClaim(ctx context.Context, e *Lease, deadline moment, r *reply[Entry]) {
	c := l.core
	if !c.prompt {
		*r = l.sendClaimAway(ctx, e, deadline)
		return
	}
	r.value, r.err = c.store.Claim(ctx, e.key, e.claim(l.cfg.lease)) // see Lease.sendEnd
	r.err = verdict(r.err, false)
}

func (l *Locker) sendClaimAway(ctx context.Context, e *Lease, deadline moment) reply[Entry] {
	c := l.core
	e.flight = &flight{minority: minority{core: c}}
	x := outgoing{core: c, parent: ctx, budget: deadline.until(), most: maxSends, flight: e.flight}
	defer x.abandon()
	for try, more := x.next(); more; try, more = x.next() {
		entry, err := c.store.Claim(try, e.key, e.claim(l.cfg.lease))
		if x.back(try, err) {
			return reply[Entry]{entry, x.err, x.unanswered}
		}
	}
	claim := e.claim(l.cfg.lease)
	return hedge(x, func(ctx context.Context) (Entry, error) { return c.store.Claim(ctx, e.key, claim) })
}

// judge decides what the answer to a claim means, and whether to claim again.
func (l *Locker) judge(ctx context.Context, e *Lease, entry *Entry, sent, deadline moment) (again bool, err error) {
	if entry.State == Held && entry.Token == e.token {
		return false, l.granted(ctx, e, entry.Fence, sent)
	}
	if e.run != nil {
		e.run.replaces, e.run.attempt = "", 1 // whatever was seen before has changed
	}
	e.story.finds(entry.Owner)
	switch {
	case entry.State == Free:
		// It ended between the claim and the reading of what was in its way.
		return true, nil
	case entry.State != Settled && l.core.reaper.orphan(entry.Token):
		// Our own claim, which nobody waited for any more, is in the way. Only
		// this is removed on sight: it is known never to have been granted.
		// That a token is not known to be alive proves nothing.
		err = l.removeOrphan(ctx, e, entry.Token, deadline)
		return err == nil, err
	}
	if reason := e.reasonOf(entry.State, entry.Fingerprint); reason != nil {
		return false, &RefusedError{Reason: reason, Entry: *entry}
	}
	// The entry that was seen is named, so that of two that see it only one takes it
	// over.
	e.run.replaces, e.run.attempt = entry.Token, entry.Attempt+1
	return true, nil
}

// claim is what e asks the store for.
func (e *Lease) claim(lease time.Duration) Claim {
	cfg := &e.locker.cfg
	c := Claim{
		Token:   e.token,
		Attempt: 1,
		Owner:   e.owner(),
		Lease:   lease,
		Fenced:  cfg.fenced,
	}
	if r := e.run; r != nil {
		c.Replaces, c.Attempt, c.Fingerprint, c.Linger, c.Scope = r.replaces, r.attempt, r.print, cfg.keep, r.scope
	}
	return c
}

// granted makes e a running lease, if enough of it is left.
func (l *Locker) granted(ctx context.Context, e *Lease, fence int64, sent moment) error {
	took := sent.since()
	validity := l.cfg.lease - l.core.drift(l.cfg.lease)
	if took >= validity {
		// Too late to be of use, because this process was paused. Nothing ran
		// under it, so it is no more than an orphan.
		e.unanswered = true
		return fmt.Errorf("%w: the claim was answered after its lease was over", ErrUnavailable)
	}
	e.fence, e.fenced = fence, l.cfg.fenced
	e.start(sent, took, validity)
	kind := EventClaimed
	switch {
	case e.unanswered:
		kind = EventRecovered
	case e.takeover:
		kind = EventTakenOver
		l.logTakenOver(ctx, e)
	}
	if kind != EventClaimed {
		l.core.recent.note(kind, e.label())
	}
	l.emit(ctx, e, kind, took, nil)
	return nil
}

// removeOrphan frees e's key from a dead claim of this locker.
func (l *Locker) removeOrphan(ctx context.Context, e *Lease, token string, deadline moment) error {
	r := exchange(ctx, l.core, deadline.until(), nil, func(ctx context.Context) (bool, error) {
		return l.core.store.Release(ctx, e.key, token)
	})
	if r.err != nil {
		l.trouble(ctx, r.err)
		return r.err
	}
	if r.value {
		l.core.recent.note(EventReaped, e.label())
		l.emit(ctx, e, EventReaped, 0, nil)
	}
	return nil
}
