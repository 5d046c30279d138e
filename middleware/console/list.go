package console

import (
	"cmp"
	"errors"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/httplatch/httplatch/internal/about"
	"github.com/httplatch/httplatch/internal/keytext"
	"github.com/httplatch/httplatch/lock"
)

// list is a page of entries.
type list struct {
	Entries []entry  `json:"entries"`
	Next    string   `json:"next,omitempty"` // the cursor of what follows
	Trouble string   `json:"trouble,omitempty"`
	Process activity `json:"process"`

	Looked int `json:"looked"` // through about so many entries, those of the pages before included

	Query   string   `json:"-"`
	Limit   int      `json:"-"`
	Answers bool     `json:"-"` // stored ones are shown too
	Begun   bool     `json:"-"` // it is not the first page
	Free    []string `json:"-"` // whole keys that were asked for and are free
}

const (
	defaultEntries = 50
	maxEntries     = 200
	maxWhole       = 5 // are explained in full; of more, the first sentence is shown
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
	l.Trouble = trouble(err, len(found) > 0)
	l.Process = h.activity(l.Query)

	slices.SortStableFunc(found, func(x, y lock.Entry) int { return cmp.Compare(x.Key, y.Key) })
	found = slices.CompactFunc(found, func(x, y lock.Entry) bool { return x.Key == y.Key })
	keys := make(map[string]bool, len(found))
	for _, e := range found {
		keys[e.Key] = true
	}
	local := h.locker.Snapshot(2*maxStep, func(key string) bool { return keys[key] })
	l.Entries = make([]entry, 0, len(found))
	for i := range found {
		l.Entries = append(l.Entries, describe(&found[i], &local))
	}
	// What waits for a decision comes first.
	slices.SortStableFunc(l.Entries, func(x, y entry) int { return cmp.Compare(x.urgency(), y.urgency()) })
	if a.html() && l.goesOn() {
		a.w.Header().Set("Refresh", "0; url="+l.More())
	}
	a.send(http.StatusOK, "list", l)
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
		if e := &l.Entries[i]; e.Situation == situationAnswer && e.Request != nil && e.Request.Label == about.Short(l.Query) {
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

func storedAnswer(e lock.Entry) bool {
	return e.State == lock.Settled && keytext.IsRecord(e.Key)
}

// Shown is the query as it is shown.
func (l *list) Shown() string { return visible(l.Query) }

// trouble is what is wrong with a list.
func trouble(err error, some bool) string {
	switch {
	case err == nil:
		return ""
	case errors.Is(err, errNoList):
		return "This store cannot list its entries. Type a whole key to look it up; below is what this process holds."
	case some:
		return "The store did not answer to the end: there may be more than is shown."
	default:
		return "The store did not answer, so it is not known what is held. Try again."
	}
}
