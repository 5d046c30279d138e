package console

import (
	"strings"
	"time"

	"github.com/httplatch/httplatch/internal/keytext"
	"github.com/httplatch/httplatch/lock"
)

// activity is the work of this process, for an operator.
type activity struct {
	Holds      []hold     `json:"holds"`
	Cleanups   []cleanup  `json:"cleanups"`
	Backlog    int        `json:"backlog"` // of clean-ups, listed or not
	Recoveries []recovery `json:"recoveries"`
}

type hold struct {
	Key     string     `json:"key"`   // the program's name
	Entry   string     `json:"entry"` // the store's name
	Since   *time.Time `json:"since"` // null: it is still being claimed
	Until   *time.Time `json:"until"` // the end of the lease unless it is renewed; null like Since
	Ending  bool       `json:"ending"`
	Waiting int        `json:"waiting"`
	Set     []string   `json:"set,omitempty"`     // all keys of its set
	Request *request   `json:"request,omitempty"` // only of a guard
}

type cleanup struct {
	Key   string         `json:"key"`
	Entry string         `json:"entry"`
	Kind  lock.EventKind `json:"kind"`
	Since time.Time      `json:"since"`

	Request *request `json:"request,omitempty"`
}

type recovery struct {
	At   time.Time      `json:"at"`
	Kind lock.EventKind `json:"kind"`
	Key  string         `json:"key"`
}

// maxLocal bounds the items of each kind.
const maxLocal = 50

// activity returns the work of this process on keys with text in them.
func (h *handler) activity(text string) activity {
	sought := searchFor(text)
	s := h.locker.Snapshot(maxLocal, func(entry, owner string) bool { return sought.matches(&lock.Entry{Key: entry, Owner: owner}) })
	p := activity{
		Holds:      make([]hold, 0, len(s.Holds)),
		Cleanups:   make([]cleanup, 0, len(s.Cleanups)),
		Backlog:    h.locker.Stats().Backlog,
		Recoveries: make([]recovery, 0, len(s.Recoveries)),
	}
	for _, held := range s.Holds {
		shown := hold{Key: held.Key, Entry: held.Entry, Ending: held.Ending, Waiting: held.Waiting, Set: held.Set, Request: requestOf(held.Owner)}
		if !held.Since.IsZero() {
			shown.Since, shown.Until = &held.Since, &held.Until
		}
		p.Holds = append(p.Holds, shown)
	}
	for _, u := range s.Cleanups {
		p.Cleanups = append(p.Cleanups, cleanup{u.Key, u.Entry, u.Kind, u.Since, requestOf(u.Owner)})
	}
	for _, r := range s.Recoveries {
		p.Recoveries = append(p.Recoveries, recovery{r.At, r.Kind, r.Key})
	}
	return p
}

// Shown returns the key for display.
func (h hold) Shown() string { return visible(h.Key) }

// Link leads to the entry.
func (h hold) Link() string { return entryLink(h.Entry) }

// What says what this process does with the key.
func (h hold) What() string {
	var b strings.Builder
	switch {
	case h.Ending:
		b.WriteString("the work is over; the store has not confirmed the end yet")
	case h.Since == nil:
		b.WriteString("being claimed")
	default:
		b.WriteString("running for " + ago(*h.Since) + "; if this process died now, " + h.lapses(span(time.Until(*h.Until))))
	}
	if h.Waiting > 0 {
		b.WriteString("; " + plural(h.Waiting, "request waits", "requests wait"))
	}
	return b.String()
}

// lapses says what becomes of the key when its lease is over, in the time left.
func (h hold) lapses(left string) string {
	if keytext.IsRecord(h.Entry) {
		return "in " + left + " " + lapsed
	}
	return "free in " + left
}

// Shown returns the key for display.
func (u cleanup) Shown() string { return visible(u.Key) }

// Link leads to the entry.
func (u cleanup) Link() string { return entryLink(u.Entry) }

// What names the call that is repeated, and for how long.
func (u cleanup) What() string { return cleanupWords[u.Kind] + ", for " + ago(u.Since) }

// Shown returns the key for display.
func (r recovery) Shown() string { return visible(r.Key) }

// When says how long ago it was.
func (r recovery) When() string { return ago(r.At) + " ago" }

// What says what happened.
func (r recovery) What() string { return recoveryWords[r.Kind] }

var (
	cleanupWords = map[lock.EventKind]string{
		lock.EventReaped:   "its claim got no answer, or its lease was lost; what may be left is being removed",
		lock.EventReleased: "the release got no answer and is being repeated",
		lock.EventSettled:  "the receipt got no answer and is being left again",
	}
	recoveryWords = map[lock.EventKind]string{
		lock.EventRecovered: "a claim got no answer, was asked for again, and was granted",
		lock.EventTakenOver: "taken over from a process that had vanished",
		lock.EventReaped:    "an entry without a holder was found and removed",
		lock.EventLost:      "the lease ended before its work: it may have overlapped with another holder's",
	}
)
