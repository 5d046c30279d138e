package middleware

import (
	"cmp"
	"context"
	"errors"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/httplatch/httplatch/internal/keytext"
	"github.com/httplatch/httplatch/lock"
)

// consoleList is a page of entries.
type consoleList struct {
	Entries []consoleEntry `json:"entries"`
	Next    string         `json:"next,omitempty"` // the cursor of what follows
	Trouble string         `json:"trouble,omitempty"`
	Process consoleProcess `json:"process"`

	Query   string   `json:"-"`
	Limit   int      `json:"-"`
	Answers bool     `json:"-"` // stored ones are shown too
	Begun   bool     `json:"-"` // it is not the first page
	Free    []string `json:"-"` // whole keys that were asked for and are free
}

const (
	defaultEntries = 50
	maxEntries     = 200
	maxStep        = 1000 // entries looked at in one call of the store

	// searchTime is for how long one request looks through keys that do not match.
	searchTime = time.Second
)

func (c *console) showList(a *consoleAnswer, query url.Values) {
	limit, badLimit := strconv.Atoi(query.Get("limit"))
	if badLimit != nil || limit < 1 {
		limit = defaultEntries
	}
	l := &consoleList{
		Query:   strings.TrimSpace(query.Get("q")),
		Limit:   min(limit, maxEntries),
		Answers: query.Get("answers") != "",
		Begun:   query.Get("after") != "",
	}
	if len(l.Query) > lock.MaxKeyBytes {
		a.fail(queryTooLong)
		return
	}
	ctx := a.r.Context()
	var found []lock.Entry
	var err error
	if l.Query != "" && !l.Begun {
		found, l.Free, err = c.whole(ctx, l.Query)
	}
	if err == nil {
		var listed []lock.Entry
		listed, l.Next, err = c.collect(ctx, query.Get("after"), l)
		found = append(found, listed...)
	}
	l.Trouble = trouble(err, len(found) > 0)
	l.Process = c.process(l.Query)

	slices.SortStableFunc(found, func(x, y lock.Entry) int { return cmp.Compare(x.Key, y.Key) })
	found = slices.CompactFunc(found, func(x, y lock.Entry) bool { return x.Key == y.Key })
	keys := make(map[string]bool, len(found))
	for _, e := range found {
		keys[e.Key] = true
	}
	local := c.locker.Snapshot(2*maxStep, func(key string) bool { return keys[key] })
	l.Entries = make([]consoleEntry, 0, len(found))
	for i := range found {
		l.Entries = append(l.Entries, describe(&found[i], &local))
	}
	a.send(200, "list", l)
}

// First leads to the first page.
func (l *consoleList) First() string { return l.page("") }

// More leads to what follows.
func (l *consoleList) More() string { return l.page(l.Next) }

func (l *consoleList) page(after string) string {
	q := url.Values{"limit": {strconv.Itoa(l.Limit)}}
	if after != "" {
		q.Set("after", after)
	}
	if l.Query != "" {
		q.Set("q", l.Query)
	}
	if l.Answers {
		q.Set("answers", "1")
	}
	return "?" + q.Encode()
}

// pager is the part of a lock.Inspector that lists in steps.
type pager interface {
	Page(ctx context.Context, cursor string, limit int, match func(key string) bool) (page []lock.Entry, next string, err error)
}

var errNoList = errors.New("middleware: the store cannot list")

// collect reads on from cursor until there are enough entries, or the time for
// that is over.
func (c *console) collect(ctx context.Context, cursor string, l *consoleList) (found []lock.Entry, next string, err error) {
	inspector, ok := c.store.(lock.Inspector)
	if !ok {
		return nil, "", errNoList
	}
	steps, ok := c.store.(pager)
	if !ok {
		steps = wholeList{inspector}
	}
	match := matcher(l.Query)
	next = cursor
	step := l.Limit
	for until := time.Now().Add(searchTime); ; {
		page, after, err := steps.Page(ctx, next, step, match)
		if errors.Is(err, errors.ErrUnsupported) {
			// A store over others that lack it.
			steps = wholeList{inspector}
			page, after, err = steps.Page(ctx, next, step, match)
		}
		if err != nil {
			return found, next, err
		}
		if !l.Answers {
			page = slices.DeleteFunc(page, storedAnswer)
		}
		found, next = append(found, page...), after
		if next == "" || len(found) >= l.Limit || !time.Now().Before(until) {
			return found, next, nil
		}
		if len(page) == 0 {
			step = min(2*step, maxStep)
		} else {
			step = l.Limit
		}
	}
}

func storedAnswer(e lock.Entry) bool {
	return e.State == lock.Settled && strings.HasPrefix(e.Key, keytext.RecordPrefix)
}

// Shown is the query as it is shown.
func (l *consoleList) Shown() string { return visible(l.Query) }

// matcher accepts keys with text in them, whatever the case: as they are, as they
// are shown, and where text is a value as it was before it was composed. It is nil
// for all.
func matcher(text string) func(key string) bool {
	if text == "" {
		return nil
	}
	texts := []string{strings.ToLower(text), strings.ToLower(lock.Key(text))}
	return func(key string) bool {
		lower := strings.ToLower(key)
		return strings.Contains(lower, texts[0]) || strings.Contains(lower, texts[1]) ||
			strings.Contains(strings.ToLower(visible(key)), texts[0])
	}
}

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
		return "The store did not answer, so nobody knows what is held. Try again."
	}
}
