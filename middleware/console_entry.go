package middleware

import (
	"encoding/base64"
	"fmt"
	"net/url"
	"strings"
	"time"

	"github.com/httplatch/httplatch/internal/keytext"
	"github.com/httplatch/httplatch/lock"
)

// consoleEntry is one entry as an operator sees it.
type consoleEntry struct {
	Key       string    `json:"key"`
	Situation situation `json:"situation"`
	Summary   string    `json:"summary"` // what it means, in a sentence or two
	Freeing   string    `json:"freeing"` // what freeing it does
	Token     string    `json:"token"`   // for DELETE
	Link      string    `json:"link"`    // leads to it, whatever bytes its key has
	State     string    `json:"state"`   // of lock.State
	Owner     string    `json:"owner"`   // as claimed
	Attempt   int       `json:"attempt"` // as claimed
	Fence     int64     `json:"fence"`   // 0: none
	LeftMS    int64     `json:"left_ms"` // of the lease, the linger or the receipt; 0: not known
	Here      *heldHere `json:"here"`    // null: not held by this process
	left      time.Duration
}

// heldHere is what only the process that holds a key knows.
type heldHere struct {
	Key     string    `json:"key"` // as its program calls it
	Since   time.Time `json:"since"`
	Renewed bool      `json:"renewed"`
	Waiting int       `json:"waiting"`
}

// entryLink leads to the entry of key from any page of the console.
func entryLink(key string) string { return "?key=" + url.QueryEscape(key) }

// situation is what an entry means to a request that waits for it.
type situation string

const (
	situationHeld       situation = "held"
	situationRunning    situation = "running"
	situationUnanswered situation = "unanswered"
	situationUnknown    situation = "outcome-unknown"
	situationCooldown   situation = "cool-down"
	situationAnswer     situation = "stored-answer"
	situationUnreadable situation = "unreadable"
)

// Label is what the page calls it.
func (s situation) Label() string {
	return map[situation]string{
		situationHeld:       "Held",
		situationRunning:    "Running",
		situationUnanswered: "Being cleaned up",
		situationUnknown:    "Outcome unknown",
		situationCooldown:   "Cool-down",
		situationAnswer:     "Stored answer",
		situationUnreadable: "Unreadable",
	}[s]
}

// Shown is the key as it is shown, and typed.
func (e *consoleEntry) Shown() string { return visible(e.Key) }

// Part is what may be typed instead.
func (e *consoleEntry) Part() string { return lastPart(e.Shown()) }

// Left is the time left.
func (e *consoleEntry) Left() string { return span(e.left) }

// Process is the process that has claimed it.
func (e *consoleEntry) Process() string { return process(e.Owner) }

// Since is when this process got it.
func (e *consoleEntry) Since() string { return e.Here.Since.Format(time.DateTime) }

// Freeable says whether there is something that a compare-and-delete can compare.
func (e *consoleEntry) Freeable() bool { return e.Token != "" }

// FormKey and FormToken go through a form, which would change line ends and
// what is not UTF-8.
func (e *consoleEntry) FormKey() string   { return formField(e.Key) }
func (e *consoleEntry) FormToken() string { return formField(e.Token) }

func formField(s string) string { return base64.RawURLEncoding.EncodeToString([]byte(s)) }

// describe says what e means. local is what this process knows of it.
func describe(e *lock.Entry, local *lock.Snapshot) consoleEntry {
	c := consoleEntry{
		Key:     e.Key,
		Token:   e.Token,
		Link:    entryLink(e.Key),
		State:   e.State.String(),
		Owner:   e.Owner,
		Attempt: e.Attempt,
		Fence:   e.Fence,
		LeftMS:  e.Left.Milliseconds(),
		left:    e.Left,
	}
	for _, h := range local.Holds {
		if h.Entry == e.Key && h.Token == e.Token && h.Token != "" {
			c.Here = &heldHere{h.Key, h.Since, h.Renewed, h.Waiting}
		}
	}
	record := strings.HasPrefix(e.Key, keytext.RecordPrefix)
	switch {
	case e.State == lock.Free:
		c.unreadable()
	case e.State == lock.Settled && record:
		c.answer(e.Receipt)
	case e.State == lock.Settled:
		c.cooldown()
	case e.State == lock.Abandoned:
		c.unknown()
	case sweeping(local.Cleanups, e):
		c.unanswered()
	case record:
		c.running()
	default:
		c.held()
	}
	return c
}

// sweeping reports whether e is a claim that no work runs under.
func sweeping(cleanups []lock.Cleanup, e *lock.Entry) bool {
	for _, c := range cleanups {
		if c.Entry == e.Key && c.Token == e.Token && c.Kind == lock.EventReaped {
			return true
		}
	}
	return false
}

func (e *consoleEntry) held() {
	e.Situation = situationHeld
	e.Summary = fmt.Sprintf("%s Other requests for %s are refused as long as it is held.", e.lease("A request is being worked on"), e.Shown())
	e.Freeing = "The next request is let in at once. If the work still goes on, two run at the same time until its process notices, " +
		"which is at its next renewal."
}

func (e *consoleEntry) running() {
	e.Situation = situationRunning
	e.Summary = fmt.Sprintf("%s Repeats of this request are refused, or wait, until it ends. Nobody else is concerned.",
		e.lease("The first request with this key is being worked on"))
	e.Freeing = "The same request, sent again, runs as if it were new. If the first still goes on, it may happen twice."
}

// lease says which process has e and for how long.
func (e *consoleEntry) lease(what string) string {
	switch {
	case e.Here == nil:
		return fmt.Sprintf("%s: held by %s for another %s, and renewed as long as that process works on it. "+
			"If the process is gone, it is free by then without anybody's help.", what, e.Process(), e.Left())
	case e.Here.Renewed:
		return fmt.Sprintf("%s: held since %s (for %s) by %s, which is this one, for another %s; it is renewed as long as the work goes on.",
			what, e.Since(), ago(e.Here.Since), e.Process(), e.Left())
	default:
		return fmt.Sprintf("%s: held since %s by %s, which is this one, for another %s. It is not renewed any more.",
			what, e.Since(), e.Process(), e.Left())
	}
}

func (e *consoleEntry) unanswered() {
	e.Situation = situationUnanswered
	e.Summary = fmt.Sprintf("Nobody works under this. The store did not answer when it was claimed or renewed, and this process is removing what "+
		"was left. It does not refuse its own requests because of it; other processes do, for another %s at most.", e.Left())
	e.Freeing = "Nothing is lost: no work runs under it."
}

func (e *consoleEntry) unknown() {
	e.Situation = situationUnknown
	e.Summary = fmt.Sprintf("Outcome unknown: %s began this request and vanished, and nobody knows how far it came. "+
		"Nothing runs it again for another %s, unless its route was told to (lock.WithRerunAbandoned); repeats are refused. "+
		"Find out whether it took effect (is there an order?) before you free it.", e.Process(), e.Left())
	e.Freeing = "The same request, sent again, runs as if it were new. If the first did take effect, it happens twice."
}

func (e *consoleEntry) cooldown() {
	e.Situation = situationCooldown
	e.Summary = fmt.Sprintf("In a cool-down for another %s: a request was answered a moment ago, and the next one is refused until then. "+
		"It ends by itself.", e.Left())
	e.Freeing = "The next request is let in at once."
}

func (e *consoleEntry) answer(receipt []byte) {
	e.Situation = situationAnswer
	what := "A stored answer"
	if r, err := readRecord(receipt); err == nil && r.tombstone {
		what = fmt.Sprintf("An answer of status %d that could not be stored", r.status)
	} else if err == nil {
		what = fmt.Sprintf("A stored answer of status %d and %d bytes", r.status, len(r.body))
	}
	e.Summary = fmt.Sprintf("%s, kept for another %s: the request was processed, and a repeat of it is told so instead of running again. "+
		"It keeps nobody else waiting.", what, e.Left())
	e.Freeing = "The same request, sent again, runs as if it were new, and happens twice."
}

func (e *consoleEntry) unreadable() {
	e.Situation = situationUnreadable
	e.Summary = "Something is stored under this name that cannot be read here: it is of a newer version, sealed, or not from httplatch. " +
		"Requests for it are answered with 503."
}
