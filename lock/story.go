package lock

import (
	"context"
	"time"

	"github.com/httplatch/httplatch/lock/event"
)

// story is what observers get of an acquire in addition to its end. A lease has
// none if there is neither an observer nor an origin. It is written before the lease is granted.
type story struct {
	began  time.Time
	waited time.Duration
	owner  string // of the entry that is claimed
	found  string // owner of the one that was in the way
}

// story begins the story of an acquire, nil if there is neither an observer nor an origin.
func (l *Locker) story(ctx context.Context) *story {
	if len(l.cfg.observers) == 0 && l.cfg.origin == nil {
		return nil
	}
	s := &story{began: time.Now(), owner: l.core.owner}
	if l.cfg.origin != nil {
		if origin := l.cfg.origin(ctx); origin != "" {
			s.owner += " " + origin
		}
	}
	return s
}

// owner is what an entry of e says of its owner.
func (e *Lease) owner() string {
	if e.claim.story == nil {
		return e.locker.core.owner
	}
	return e.claim.story.owner
}

// waits notes that e has waited for another holder since then.
func (s *story) waits(since time.Time) {
	if s != nil {
		s.waited += time.Since(since)
	}
}

// finds notes what was in the way.
func (s *story) finds(owner string) {
	if s != nil {
		s.found = owner
	}
}

// tell adds what the kind of v has of it.
func (s *story) tell(v *Event) {
	if s == nil {
		return
	}
	switch v.Kind {
	case event.Claimed, event.Recovered:
		v.Took, v.Waited = time.Since(s.began), s.waited
	case event.TakenOver, event.Refused, event.Replayed:
		v.Took, v.Waited, v.Owner = time.Since(s.began), s.waited, s.found
	case event.Unknown, event.Unavailable:
		v.Call, v.Waited = callClaim, s.waited
	case event.Renewed, event.Lost, event.Released, event.Settled, event.Reaped, event.Bypassed, event.Skipped, event.Rejected:
	}
}

// The calls to a store that events name.
const (
	callClaim   = "claim"
	callRenew   = "renew"
	callSettle  = "settle"
	callRelease = "release"
)
