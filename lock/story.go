package lock

import (
	"context"
	"time"
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
	if e.story == nil {
		return e.locker.core.owner
	}
	return e.story.owner
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
	case EventClaimed, EventRecovered:
		v.Took, v.Waited = time.Since(s.began), s.waited
	case EventTakenOver, EventRefused, EventReplayed:
		v.Took, v.Waited, v.Owner = time.Since(s.began), s.waited, s.found
	case EventUnknown, EventUnavailable:
		v.Call, v.Waited = callClaim, s.waited
	case EventRenewed, EventLost, EventReleased, EventSettled, EventReaped, EventBypassed, EventSkipped, EventRejected:
	}
}

// The calls to a store that events name.
const (
	callClaim   = "claim"
	callRenew   = "renew"
	callSettle  = "settle"
	callRelease = "release"
)
