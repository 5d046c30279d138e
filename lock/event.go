package lock

import (
	"context"
	"time"

	"github.com/httplatch/httplatch/internal/requestinfo"
)

// Observer gets the events of a [Locker]. It is called outside all locks, on the goroutine of
// the event, so a slow one slows its request. A panic in it is logged and goes no further. It
// must be safe for concurrent use.
type Observer func(ctx context.Context, e Event)

// Event is an event of one key.
type Event struct {
	Kind    EventKind
	Name    string // the name given to Key: bounded, fit for a metric label; "" if the key was not composed
	Key     string // the key itself: never a label
	Once    bool   // false: of Do or Acquire
	Attempt int
	Call    string        // unknown, unavailable: the failed call to the store: claim, hand_over, begin, renew, settle, release or step
	Took    time.Duration // of the acquire, the call or the clean-up; released, settled, handed over, lost: since the grant
	Waited  time.Duration // how long an acquire waited for another holder
	Left    time.Duration // released, settled, handed over: of the validity of the lease
	Size    int           // settled: of the receipt, in bytes
	Owner   string        // taken over, refused, replayed: of the entry that was found; see WithOrigin
	Err     error         // the reason, nil if the kind is enough. A loss has a Class() string: expired, taken or max_hold
}

// EventKind says what has happened to a key. The text is stable and fit for a metric label.
type EventKind string

// The kinds of events.
const (
	EventClaimed     EventKind = "claimed"     // a key was granted
	EventRecovered   EventKind = "recovered"   // granted, after a send of the same claim had got no answer
	EventTakenOver   EventKind = "taken_over"  // granted, in place of a holder that had vanished
	EventHandedOver  EventKind = "handed_over" // a key was handed over by its holder, and waits for a resume
	EventResumed     EventKind = "resumed"     // granted, by a ticket
	EventRefused     EventKind = "refused"     // a key was refused; Err says why
	EventReplayed    EventKind = "replayed"    // a receipt was found
	EventRenewed     EventKind = "renewed"     // a lease was prolonged
	EventLost        EventKind = "lost"        // a lease ended before its work
	EventReleased    EventKind = "released"    // a key was freed by its holder
	EventSettled     EventKind = "settled"     // a receipt was left
	EventUnknown     EventKind = "unknown"     // a call got no answer and may have been applied
	EventReaped      EventKind = "reaped"      // an entry without a holder was found and removed, as that of a claim that got no answer
	EventUnavailable EventKind = "unavailable" // the store did not serve a call, certainly without effect
	EventBypassed    EventKind = "bypassed"    // work runs unprotected, as WithFailOpen allows
	EventSkipped     EventKind = "skipped"     // work runs unguarded: it has no key, and need not have one
	EventRejected    EventKind = "rejected"    // refused before any key was asked for; Err says why, and has a Class() string
)

// observation collects facts about an acquire for its event. It is written before the lease
// is granted.
type observation struct {
	began  time.Time
	waited time.Duration
	found  string // the owner of the entry in the way
}

// addWait adds the time since then to the wait for another holder.
func (o *observation) addWait(since time.Time) {
	if o != nil {
		o.waited += time.Since(since)
	}
}

// noteFound notes the owner of the entry in the way.
func (o *observation) noteFound(owner string) {
	if o != nil {
		o.found = requestinfo.Process(owner)
	}
}

// The calls to a store and the steps of a lease, as events name them.
const (
	callClaim    = "claim"
	callHandOver = "hand_over"
	callBegin    = "begin"
	callRenew    = "renew"
	callSettle   = "settle"
	callRelease  = "release"
	callStep     = "step"
)
