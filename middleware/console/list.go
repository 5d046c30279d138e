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
	Next    string   `json:"next,omitempty"` // the cursor of what follows
	Trouble string   `json:"trouble,omitempty"`
	Class   string   `json:"class,omitempty"` // of the trouble, and Check of what the last check of the store has found: see lock.Class
	Check   string   `json:"check,omitempty"`
	Process activity `json:"process"`

	Looked int `json:"looked"` // through about so many entries, those of the pages before included

	Query   string   `json:"-"`
	Limit   int      `json:"-"`
	Answers bool     `json:"-"` // stored ones are shown too
	Begun   bool     `json:"-"` // it is not the first page
	Free    []string `json:"-"` // whole keys that were asked for and are free
	Away    bool     `json:"-"` // the store has not answered, and nothing is known of any key
}

const (
	maxEntries = 200
	maxWhole   = 5 // are explained in full; of more, the first sentence is shown
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
		found, l.Free, err = h.whole(ctx, l.Query)
	}
	if err == nil {
		var listed []lock.Entry
		listed, err = h.collect(ctx, query.Get("after"), l)
		found = append(found, listed...)
	}
	if err != nil {
		l.troubled(err, len(found) > 0, h.unanswered(ctx))
	}
	l.Check = h.locker.Stats().Trouble
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
	// What waits for a decision comes first.
	slices.SortStableFunc(l.Entries, func(x, y entry) int { return cmp.Compare(x.urgency(), y.urgency()) })
	if a.html() && l.goesOn() {
		a.w.Header().Set("Refresh", "0; url="+l.More())
	}
	status := http.StatusOK
	if l.Away {
		status = http.StatusServiceUnavailable
	}
	a.send(status, "list", l)
}

// Unknown is how many of the entries wait for a decision.
func (l *list) Unknown() (n int) {
	for i := range l.Entries {
		n += 1 - l.Entries[i].urgency()
	}
	return n
}

// Long reports whether there are too many entries to say all of each.
func (l *list) Long() bool { return len(l.Entries) > maxWhole }

// Whose is the label under which stored answers are shown that can be erased, "" if there
// is none.
func (l *list) Whose() string {
	for i := range l.Entries {
		if e := &l.Entries[i]; e.Situation == situationAnswer && e.Request != nil && (e.Request.Label == requestinfo.Short(l.Query) || e.Request.Shown() == l.Query) {
			return e.Request.Label
		}
	}
	return ""
}

// FormWhose goes through a form.
func (l *list) FormWhose() string { return formField(l.Whose()) }

// goesOn reports whether the page goes on by itself, since it has found nothing yet.
func (l *list) goesOn() bool {
	return l.Query != "" && l.Next != "" && len(l.Entries) == 0 && l.Trouble == ""
}

// First leads to the first page.
func (l *list) First() string { return l.page("") }

// More leads to what follows.
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

// Shown is the query as it is shown.
func (l *list) Shown() string { return visible(l.Query) }

// troubled says what is wrong with the list: err, after some entries were found or none.
// gone is the error of one entry that was read after that.
func (l *list) troubled(err error, some bool, gone error) {
	switch {
	case errors.Is(err, errNoList):
		l.Trouble = "This store cannot list its entries. Type a whole key to look it up; below is what this process holds."
		return
	case gone != nil && !some:
		l.Trouble, l.Away, l.Free = away(gone), true, nil
		err = gone
	default:
		l.Trouble = "The store did not list its entries to the end" + classed(err) + ": there may be more than is shown."
	}
	l.Class = lock.Class(err)
}
