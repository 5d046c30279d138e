package console

import (
	"fmt"
	"strings"
	"time"

	"github.com/httplatch/httplatch/internal/keytext"
	"github.com/httplatch/httplatch/internal/requestinfo"
	"github.com/httplatch/httplatch/lock"
	"github.com/httplatch/httplatch/middleware/internal/record"
)

// entry is an entry of the store, for an operator.
type entry struct {
	Key       string    `json:"key"`
	Situation situation `json:"situation"`
	Summary   string    `json:"summary"` // its meaning, in a sentence or two
	Freeing   string    `json:"freeing"` // the effect of freeing it
	Token     string    `json:"token"`   // for DELETE
	Link      string    `json:"link"`    // leads to it, for keys of any bytes
	State     string    `json:"state"`   // of lock.State
	Owner     string    `json:"owner"`   // as claimed
	Attempt   int       `json:"attempt"` // as claimed
	Fence     int64     `json:"fence"`   // 0: none
	LeftMS    int64     `json:"left_ms"` // of the lease, the linger or the receipt; 0: not known
	Request   *request  `json:"request"` // null: no record, or one without a description
	Here      *heldHere `json:"here"`    // null: not held by this process
	left      time.Duration

	Answered bool `json:"-"` // it is a stored answer, or the result of a step
}

// heldHere is known only to the process that holds the key.
type heldHere struct {
	Key     string    `json:"key"` // the program's name
	Since   time.Time `json:"since"`
	Renewed bool      `json:"renewed"`
	Waiting int       `json:"waiting"`
	Set     []string  `json:"set,omitempty"` // all keys of its set
}

// Shown returns the key for display, and for typing.
func (e *entry) Shown() string { return visible(e.Key) }

// Title names the entry: the key, or the request of a record, whose key is a hash.
func (e *entry) Title() string {
	if e.Request != nil {
		return e.Request.What()
	}
	return e.Shown()
}

// Brief returns the first sentence of the summary, or all of it if the entry needs a
// decision.
func (e *entry) Brief() string {
	first, _, more := strings.Cut(e.Summary, ". ")
	if !more || e.urgency() == 0 {
		return e.Summary
	}
	return first + "."
}

// Part returns the part of the key that may be typed instead.
func (e *entry) Part() string { return lastPart(e.Shown()) }

// Left returns the time left.
func (e *entry) Left() string { return span(e.left) }

// Ends reports whether the entry ends after the time left. A lease is renewed.
func (e *entry) Ends() bool {
	return e.LeftMS > 0 && e.Situation != situationHeld && e.Situation != situationRunning
}

// Process names the process that has claimed it.
func (e *entry) Process() string { return process(e.Owner) }

// Freeable reports whether it has a token, which a compare-and-delete needs.
func (e *entry) Freeable() bool { return e.Token != "" }

// FormKey and FormToken encode the key and the token for a form.
func (e *entry) FormKey() string   { return formField(e.Key) }
func (e *entry) FormToken() string { return formField(e.Token) }

// storedAnswer reports whether e is the record of a request with an answer.
func storedAnswer(e lock.Entry) bool {
	return e.State == lock.Settled && keytext.IsRecord(e.Key) && string(e.Receipt) != record.Unknown
}

// urgency is 0 for an entry that needs a decision, and 1 for all others.
func (e *entry) urgency() int {
	if e.Situation == situationUnknown {
		return 0
	}
	return 1
}

// distance is 0 for an entry of the lock or the user of exactly this name, and 1 for all others.
func (e *entry) distance(name string) int {
	if e.Part() == name || e.Request != nil && e.Request.Label == requestinfo.Short(name) {
		return 0
	}
	return 1
}

// describe returns e for display. local is the state of this process.
func describe(e *lock.Entry, local *lock.Snapshot) entry {
	c := entry{
		Key:     e.Key,
		Token:   e.Token,
		Link:    entryLink(e.Key),
		State:   e.State.String(),
		Owner:   requestinfo.Process(e.Owner),
		Request: requestOf(e.Owner),
		Attempt: e.Attempt,
		Fence:   e.Fence,
		LeftMS:  e.Left.Milliseconds(),
		left:    e.Left,

		Answered: storedAnswer(*e),
	}
	for _, h := range local.Holds {
		if h.Entry == e.Key && h.Token == e.Token && h.Token != "" {
			c.Here = &heldHere{h.Key, h.Since, h.Renewed, h.Waiting, h.Set}
		}
	}
	_, step, isStep := keytext.CutStep(e.Key)
	switch {
	case e.State == lock.Free:
		c.unreadable()
	case isStep:
		c.step(step, e.State)
	case storedAnswer(*e):
		c.answer(e.Receipt)
	case e.State == lock.Settled && string(e.Receipt) == record.Unknown:
		c.unknownBecause("which got no answer that says what became of it", "")
	case e.State == lock.Settled:
		c.cooldown()
	case keytext.IsRecord(e.Key) && cleanedUp(local.Cleanups, e, lock.EventSettled):
		c.settling()
	case e.State == lock.Abandoned:
		c.unknown()
	case cleanedUp(local.Cleanups, e, lock.EventReaped):
		c.unanswered()
	case keytext.IsRecord(e.Key):
		c.running()
	default:
		c.held()
	}
	return c
}

// cleanedUp reports whether a call about e has no answer yet, and is repeated by this process: EventReaped for a claim
// without work, and EventSettled for work that is over.
func cleanedUp(cleanups []lock.Cleanup, e *lock.Entry, kind lock.EventKind) bool {
	for _, c := range cleanups {
		if c.Entry == e.Key && c.Token == e.Token && c.Kind == kind {
			return true
		}
	}
	return false
}

func (e *entry) held() {
	e.Situation = situationHeld
	e.Summary = fmt.Sprintf("%s Other requests for %s are refused meanwhile.", e.lease("Running", "free within %s"), e.Shown())
	e.Freeing = "The next request is let in at once, or in the process that has the key at its next renewal. If the work still goes on, two run at " +
		"the same time until then."
}

func (e *entry) running() {
	e.Situation = situationRunning
	e.Summary = fmt.Sprintf("%s Repeats of this request are refused, or wait, until it ends. No other request is concerned.",
		e.lease(e.subject()+": running", "within %s "+lapsed))
	e.Freeing = "The same request, sent again, runs as if it were new. If the first still goes on, it may happen twice."
}

// subject names the request of the record e.
func (e *entry) subject() string {
	if e.Request == nil {
		return "The first request with this key"
	}
	return e.Request.What()
}

// lapsed says what a record is after its lease: the rest of a transaction leaves nothing.
const lapsed = "its outcome is unknown, or it is free (work in a transaction)"

// lease names the process that has e, and what becomes of e in the time left if the process is gone.
func (e *entry) lease(what, end string) string {
	end = fmt.Sprintf(end, e.Left())
	switch {
	case e.Here == nil:
		if e.Request != nil {
			what += " since " + e.Request.When()
		}
		return fmt.Sprintf("%s, in %s, which renews it until the work ends. If that process is gone, %s.", what, e.Process(), end)
	case e.Here.Renewed:
		return fmt.Sprintf("%s for %s, in this process (%s), which renews it until the work ends. If the process dies now, %s.",
			what, ago(e.Here.Since), strings.TrimPrefix(e.Process(), "process "), end)
	default:
		return fmt.Sprintf("%s for %s, in this process (%s), and no longer renewed: %s.",
			what, ago(e.Here.Since), strings.TrimPrefix(e.Process(), "process "), end)
	}
}

func (e *entry) unanswered() {
	e.Situation = situationUnanswered
	e.Summary = fmt.Sprintf("No work runs under this. The store did not answer when it was claimed or renewed, and this process is removing what "+
		"was left. It does not refuse its own requests because of it; other processes do, for another %s at most.", e.Left())
	e.Freeing = "Nothing is lost: no work runs under it."
}

func (e *entry) settling() {
	e.Situation = situationUnanswered
	e.Summary = fmt.Sprintf("%s: over in this process, which leaves its end again until the store confirms it. Repeats wait meanwhile, or are "+
		"refused. Look again before you decide.", e.subject())
	e.Freeing = "The same request, sent again, runs as if it were new. If the first took effect, it happens twice."
}

func (e *entry) unknown() {
	e.unknownBecause("whose lease is over: it has ended, or it is paused or cut off, and may still leave its answer",
		", except on pages that were set up to run such requests again")
}

// unknownBecause says why the outcome is unknown, in a clause about the process, and
// which repeats are not refused.
func (e *entry) unknownBecause(why, exception string) {
	e.Situation = situationUnknown
	what, when := "this request was begun", ""
	if e.Request != nil {
		what, when = e.Request.What()+" was begun", " at "+e.Request.When()+","
	}
	e.Summary = fmt.Sprintf("Outcome unknown: %s%s by %s, %s. Repeats are refused for another %s%s. "+
		"Find out whether it took effect (is there an order?), and free it only if it did not.", what, when, e.Process(), why, e.Left(), exception)
	e.Freeing = "The same request, sent again, runs as if it were new. If the first did take effect, it happens twice."
}

func (e *entry) cooldown() {
	e.Situation = situationCooldown
	e.Summary = fmt.Sprintf("In a cool-down for another %s: a request was answered a moment ago, and the next one is refused until then. "+
		"It ends by itself.", e.Left())
	e.Freeing = "The next request is let in at once."
}

func (e *entry) answer(receipt []byte) {
	e.Situation = situationAnswer
	what := "A stored answer"
	if e.Request != nil {
		what += " to " + e.Request.What()
	}
	if r, err := record.Read(receipt); err == nil && r.Tombstone {
		what = fmt.Sprintf("An answer of status %d%s that could not be stored", r.Status, strings.TrimPrefix(what, "A stored answer"))
	} else if err == nil {
		what = fmt.Sprintf("%s, of status %d and %d bytes", what, r.Status, len(r.Body))
		if r.Pending {
			what += ", until a worker gives the final one"
		}
	}
	e.Summary = fmt.Sprintf("%s, kept for another %s: the request was processed, and a repeat gets that answer instead of running again. "+
		"It keeps no other request waiting.", what, e.Left())
	e.Freeing = "The same request, sent again, runs as if it were new, and happens twice."
}

func (e *entry) unreadable() {
	e.Situation = situationUnreadable
	e.Summary = "Something is stored under this name that cannot be read here: it is of a newer version, sealed, or not from httplatch. " +
		"Requests for it are answered with 503."
}

// entryPage is the page of one key, with its entry if there is one.
type entryPage struct {
	Shown   string
	Entry   *entry
	Mistake string // in the confirmation
	Look    string // leads here
	Record  bool   // the key is that of a request

	Check    health
	Spelling spelling // of the key, if it is free
}

// Part returns the value in the key, for a search.
func (p entryPage) Part() string { return lastPart(p.Shown) }

// Title names the entry or the key.
func (p entryPage) Title() string {
	if p.Entry != nil {
		return p.Entry.Title()
	}
	return p.Shown
}
