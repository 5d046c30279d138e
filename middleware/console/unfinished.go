package console

import (
	"net/http"
	"strings"

	"github.com/httplatch/httplatch/lock"
)

// unfinishedList is the page of submissions that were begun and not finished, without results and tickets.
type unfinishedList struct {
	Unfinished []unfinished `json:"unfinished"`
	Trouble    string       `json:"trouble,omitempty"` // the list is not complete
}

type unfinished struct {
	Key     string           `json:"key"`
	Request *request         `json:"request"` // null if it is not known
	Freed   bool             `json:"freed"`
	Steps   []unfinishedStep `json:"steps"`
}

type unfinishedStep struct {
	Name string `json:"name"`
	Done bool   `json:"done"`
	Key  string `json:"key,omitempty"` // of its calls
}

// showUnfinished lists the submissions that were begun and not finished, as far as the time of a request allows.
func (h *handler) showUnfinished(a *answer) {
	l := &unfinishedList{Unfinished: []unfinished{}}
	for u, err := range h.locker.Unfinished(a.r.Context()) {
		if err != nil {
			l.Trouble = "Not all entries were read" + classed(err) + ": there may be more than is shown. A job finds all, with Locker.Unfinished."
			break
		}
		one := unfinished{Key: u.Key, Freed: u.Freed}
		if !u.Since.IsZero() {
			one.Request = &request{u.Guard, u.Method, u.Path, u.Label, u.Since.UTC()}
		}
		for _, s := range u.Steps {
			one.Steps = append(one.Steps, unfinishedStep{s.Name, s.Done, s.Key})
		}
		l.Unfinished = append(l.Unfinished, one)
	}
	a.send(http.StatusOK, "unfinished", l)
}

// step describes the entry of a step.
func (e *entry) step(name string, state lock.State) {
	e.Situation, e.Summary = situationStep, "The step "+visible(name)+" of "+strings.TrimSpace(e.subject())
	if state == lock.Settled {
		e.Summary += " is done, and its result is kept for another " + e.Left() + ". Attempts of the request get it."
		e.Freeing = "The next attempt of the request runs the step again, under the same key."
		return
	}
	e.Summary += " was begun, and has no result: its call may have had an effect. It keeps no request waiting."
	e.Freeing = "Nothing changes: the next attempt of the request runs the step in either case."
}
