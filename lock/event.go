package lock

import (
	"context"
	"errors"
	"time"

	"github.com/httplatch/httplatch/internal/keytext"
)

// Observer sees what a [Locker] does. It is called outside all locks, on the
// goroutine that did it, so a slow one slows its request; a panic in it is
// logged and goes no further. It must be safe for concurrent use.
type Observer func(ctx context.Context, e Event)

// Event is one thing that happened to one key.
type Event struct {
	Kind    EventKind
	Name    string // the name given to Key: bounded, fit for a metric label; "" if the key was not composed
	Key     string // the key itself: never a label
	Attempt int
	Took    time.Duration // until the grant, the refusal or the receipt: of the acquire; released, settled, lost: since the grant
	Err     error         // why; nil where the kind says it all
}

// EventKind names an [Event]. The text is stable and fit for a metric label.
type EventKind string

// The kinds of events.
const (
	EventClaimed     EventKind = "claimed"     // a key was granted
	EventRecovered   EventKind = "recovered"   // granted, after a send of the same claim had got no answer
	EventTakenOver   EventKind = "taken_over"  // granted, in place of a holder that had vanished
	EventRefused     EventKind = "refused"     // a key was refused; Err says why
	EventReplayed    EventKind = "replayed"    // a receipt was found
	EventRenewed     EventKind = "renewed"     // a lease was prolonged
	EventLost        EventKind = "lost"        // a lease ended before its work
	EventReleased    EventKind = "released"    // a key was freed by its holder
	EventSettled     EventKind = "settled"     // a receipt was left
	EventUnknown     EventKind = "unknown"     // a call got no answer and may have been applied
	EventReaped      EventKind = "reaped"      // an entry of a claim that got no answer was found and removed
	EventUnavailable EventKind = "unavailable" // the store did not serve a claim, certainly without effect
	EventBypassed    EventKind = "bypassed"    // work runs unprotected, as WithFailOpen of package middleware allows
)

// observed reports whether anybody is told of events.
func (l *Locker) observed() bool { return len(l.cfg.observers) > 0 }

func (l *Locker) emit(ctx context.Context, e *Lease, kind EventKind, took time.Duration, err error) {
	if l.observed() {
		l.announce(ctx, e.event(kind, took, err))
	}
}

// emitEnd is emit for the end of a granted lease.
func (l *Locker) emitEnd(ctx context.Context, e *Lease, kind EventKind, err error) {
	if l.observed() {
		l.announce(ctx, e.event(kind, time.Since(e.grantedAt), err))
	}
}

func (e *Lease) event(kind EventKind, took time.Duration, err error) Event {
	if errors.Is(err, errReplay) {
		err = nil
	}
	return Event{Kind: kind, Name: keytext.Name(e.label), Key: e.label, Attempt: e.attempt, Took: took, Err: err}
}

func (l *Locker) announce(ctx context.Context, e Event) {
	for _, o := range l.cfg.observers {
		l.observe(ctx, o, e)
	}
}

func (l *Locker) observe(ctx context.Context, o Observer, e Event) {
	defer func() {
		if p := recover(); p != nil {
			l.cfg.logger.LogAttrs(ctx, levelError, "lock: an observer panicked", attrPanic(p), attrKind(e.Kind))
		}
	}()
	o(ctx, e)
}
