package middleware

import (
	"strings"
	"time"

	"github.com/httplatch/httplatch/lock"
)

// consoleProcess is what this process does, as an operator sees it.
type consoleProcess struct {
	Holds      []consoleHold     `json:"holds"`
	Cleanups   []consoleCleanup  `json:"cleanups"`
	Backlog    int               `json:"backlog"` // all clean-ups, whatever is listed
	Recoveries []consoleRecovery `json:"recoveries"`
}

type consoleHold struct {
	Key     string     `json:"key"`   // as its program calls it
	Entry   string     `json:"entry"` // as the store does
	Since   *time.Time `json:"since"` // null: it is still being claimed
	Until   *time.Time `json:"until"` // the end of the lease unless it is renewed; null like Since
	Ending  bool       `json:"ending"`
	Waiting int        `json:"waiting"`
}

type consoleCleanup struct {
	Key   string         `json:"key"`
	Entry string         `json:"entry"`
	Kind  lock.EventKind `json:"kind"`
	Since time.Time      `json:"since"`
}

type consoleRecovery struct {
	At   time.Time      `json:"at"`
	Kind lock.EventKind `json:"kind"`
	Key  string         `json:"key"`
}

// maxLocal is how many of each kind are shown.
const maxLocal = 50

// process says what this process does with keys that have text in them.
func (c *console) process(text string) consoleProcess {
	s := c.locker.Snapshot(maxLocal, matcher(text))
	p := consoleProcess{
		Holds:      make([]consoleHold, 0, len(s.Holds)),
		Cleanups:   make([]consoleCleanup, 0, len(s.Cleanups)),
		Backlog:    c.locker.Stats().Backlog,
		Recoveries: make([]consoleRecovery, 0, len(s.Recoveries)),
	}
	for _, h := range s.Holds {
		hold := consoleHold{Key: h.Key, Entry: h.Entry, Ending: h.Ending, Waiting: h.Waiting}
		if !h.Since.IsZero() {
			hold.Since, hold.Until = &h.Since, &h.Until
		}
		p.Holds = append(p.Holds, hold)
	}
	for _, u := range s.Cleanups {
		p.Cleanups = append(p.Cleanups, consoleCleanup{u.Key, u.Entry, u.Kind, u.Since})
	}
	for _, r := range s.Recoveries {
		p.Recoveries = append(p.Recoveries, consoleRecovery{r.At, r.Kind, r.Key})
	}
	return p
}

// Shown is the key as it is shown.
func (h consoleHold) Shown() string { return visible(h.Key) }

// Link leads to the entry.
func (h consoleHold) Link() string { return entryLink(h.Entry) }

// What says what this process does with it.
func (h consoleHold) What() string {
	var b strings.Builder
	switch {
	case h.Ending:
		b.WriteString("the work is over; the store has not confirmed the end yet")
	case h.Since == nil:
		b.WriteString("being claimed")
	default:
		b.WriteString("held since " + h.Since.Format(time.TimeOnly) + ", for " + ago(*h.Since) +
			", and unless it is renewed for another " + span(time.Until(*h.Until)))
	}
	if h.Waiting > 0 {
		b.WriteString("; " + plural(h.Waiting, "request waits", "requests wait"))
	}
	return b.String()
}

// Shown is the key as it is shown.
func (u consoleCleanup) Shown() string { return visible(u.Key) }

// Link leads to the entry.
func (u consoleCleanup) Link() string { return entryLink(u.Entry) }

// What says what is repeated, and for how long it has been.
func (u consoleCleanup) What() string { return cleanupWords[u.Kind] + ", for " + ago(u.Since) }

// Shown is the key as it is shown.
func (r consoleRecovery) Shown() string { return visible(r.Key) }

// When is how long ago it was.
func (r consoleRecovery) When() string { return ago(r.At) + " ago" }

// What says what happened.
func (r consoleRecovery) What() string { return recoveryWords[r.Kind] }

var (
	cleanupWords = map[lock.EventKind]string{
		lock.EventReaped:   "a claim got no answer; what may be left of it is being removed",
		lock.EventReleased: "the release got no answer and is being repeated",
		lock.EventSettled:  "the receipt got no answer and is being left again",
	}
	recoveryWords = map[lock.EventKind]string{
		lock.EventRecovered: "a claim got no answer, was asked for again, and was granted",
		lock.EventTakenOver: "taken over from a process that had vanished",
		lock.EventReaped:    "what a claim without an answer had left was found and removed",
		lock.EventLost:      "the lease ended before its work: it may have overlapped with another holder's",
	}
)
