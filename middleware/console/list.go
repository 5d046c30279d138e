package console

import (
	"cmp"
	"errors"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/httplatch/httplatch/internal/keytext"
	"github.com/httplatch/httplatch/internal/requestinfo"
	"github.com/httplatch/httplatch/lock"
)

// list is a page of entries.
type list struct {
	Entries []entry  `json:"entries"`
	Next    string   `json:"next,omitempty"` // the cursor of the next page
	Trouble string   `json:"trouble,omitempty"`
	Class   string   `json:"class,omitempty"` // of the trouble: see lock.Class
	Check   health   `json:"check,omitempty"`
	Process activity `json:"process"`

	Looked int `json:"looked"` // entries read so far, about, on this page and the pages before

	Query   string   `json:"-"`
	Limit   int      `json:"-"`
	Answers bool     `json:"-"` // with stored answers
	Begun   bool     `json:"-"` // not the first page
	Free    []string `json:"-"` // whole keys that were asked for and are free
	Away    bool     `json:"-"` // the store has not answered, so no key is known

	Spelling spelling `json:"-"` // of the query, if it is free
}

const (
	maxEntries = 200
	maxWhole   = 5 // entries with their whole summary; a longer page shows the first sentences
)

func (h *handler) showList(a *answer, query url.Values) {
	limit, badLimit := strconv.Atoi(query.Get("limit"))
	if badLimit != nil || limit < 1 {
		limit = defaultEntries
	}
	l := &list{
		Query:   strings.TrimSpace(query.Get("q")),
		Limit:   min(limit, maxEntries),
		Answers: query.Get("answers") != "",
		Begun:   query.Get("after") != "",
	}
	l.Looked, _ = strconv.Atoi(query.Get("looked"))
	if len(l.Query) > keytext.MaxBytes {
		a.fail(queryTooLong)
		return
	}
	ctx := a.r.Context()
	var found []lock.Entry
	var err error
	if l.Query != "" && !l.Begun {
		found, l.Free, err = h.lookUpWhole(ctx, l.Query)
	}
	if err == nil {
		var listed []lock.Entry
		listed, err = h.collect(ctx, query.Get("after"), l)
		found = append(found, listed...)
	}
	if err != nil {
		l.troubled(err, len(found) > 0, h.unanswered(ctx))
	}
	if !l.Away {
		l.Check = h.check(ctx)
	}
	l.Process = h.activity(l.Query)

	slices.SortStableFunc(found, func(x, y lock.Entry) int { return cmp.Compare(x.Key, y.Key) })
	found = slices.CompactFunc(found, func(x, y lock.Entry) bool { return x.Key == y.Key })
	keys := make(map[string]bool, len(found))
	for _, e := range found {
		keys[e.Key] = true
	}
	local := h.locker.Snapshot(2*maxStep, func(entry, _ string) bool { return keys[entry] })
	l.Entries = make([]entry, 0, len(found))
	for i := range found {
		l.Entries = append(l.Entries, describe(&found[i], &local))
	}
	if len(l.Free) > 0 && len(l.Entries) == 0 {
		l.Spelling = h.spellingOf(l.Query)
	}
	// Entries that need a decision come first, then those of the user of exactly this name.
	slices.SortStableFunc(l.Entries, func(x, y entry) int {
		return cmp.Or(cmp.Compare(x.urgency(), y.urgency()), cmp.Compare(x.distance(l.Query), y.distance(l.Query)))
	})
	if a.html() && l.goesOn() {
		a.w.Header().Set("Refresh", "0; url="+l.More())
	}
	status := http.StatusOK
	if l.Away {
		status = http.StatusServiceUnavailable
	}
	a.send(status, "list", l)
}

// Unknown counts the entries that need a decision.
func (l *list) Unknown() (n int) {
	for i := range l.Entries {
		n += 1 - l.Entries[i].urgency()
	}
	return n
}

// Title is the title of the page.
func (l *list) Title() string {
	switch {
	case l.Away:
		return "STORE DOWN"
	case l.Check.Refuses():
		return "STORE REFUSES CALLS"
	}
	return "Locks"
}

// Long reports whether the page has too many entries for whole summaries.
func (l *list) Long() bool { return len(l.Entries) > maxWhole }

// Whose returns the label whose stored answers can be erased from this page, or "" if there is no
// such label.
func (l *list) Whose() string {
	for i := range l.Entries {
		if e := &l.Entries[i]; e.Situation == situationAnswer && e.Request != nil && (e.Request.Label == requestinfo.Short(l.Query) || e.Request.Shown() == l.Query) {
			return e.Request.Label
		}
	}
	return ""
}

// FormWhose encodes the label for a form.
func (l *list) FormWhose() string { return formField(l.Whose()) }

// goesOn reports whether the page loads the next page by itself, because the search has found no
// entry yet.
func (l *list) goesOn() bool {
	return l.Query != "" && l.Next != "" && len(l.Entries) == 0 && l.Trouble == ""
}

// First leads to the first page.
func (l *list) First() string { return l.page("") }

// More leads to the next page.
func (l *list) More() string { return l.page(l.Next) }

func (l *list) page(after string) string {
	q := url.Values{"limit": {strconv.Itoa(l.Limit)}}
	if after != "" {
		q.Set("after", after)
		q.Set("looked", strconv.Itoa(l.Looked))
	}
	if l.Query != "" {
		q.Set("q", l.Query)
	}
	if l.Answers {
		q.Set("answers", "1")
	}
	return "?" + q.Encode()
}

// Shown returns the query for display.
func (l *list) Shown() string { return visible(l.Query) }

// troubled sets the trouble of the list to err, whether or not entries were found before it. gone is
// the error of a single read after err.
func (l *list) troubled(err error, some bool, gone error) {
	switch {
	case errors.Is(err, errNoList):
		l.Trouble = "This store cannot list its entries. Type a whole key to look it up; below is what this process holds."
		return
	case gone != nil && !some:
		l.Trouble, l.Away, l.Free = unansweredText(gone), true, nil
		err = gone
	default:
		l.Trouble = "The store did not list its entries to the end" + classed(err) + ": there may be more than is shown."
	}
	l.Class = lock.Class(err)
}
