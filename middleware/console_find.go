package middleware

import (
	"context"
	"errors"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"github.com/httplatch/httplatch/internal/keytext"
	"github.com/httplatch/httplatch/lock"
)

// whole looks text up as a whole key: as it is, as name=value whose value holds
// something that lock.Key escapes, and as what a program gave to lock.Locker.Once.
// Whole keys are found at once, however many there are. free is those of them
// that read like a key and are free.
func (c *console) whole(ctx context.Context, text string) (found []lock.Entry, free []string, err error) {
	candidates := []string{text}
	if name, value, ok := strings.Cut(text, "="); ok {
		candidates = append(candidates, lock.Key(name, value))
	}
	candidates = append(candidates, keytext.Record(text))
	for i, key := range candidates {
		if slices.Contains(candidates[:i], key) || len(key) > lock.MaxKeyBytes {
			continue
		}
		e, err := c.get(ctx, key)
		switch {
		case err != nil:
			return found, free, err
		case e.Key != "":
			found = append(found, e)
		case i == 0 && strings.Contains(text, "="):
			free = append(free, visible(key))
		}
	}
	if len(found) > 0 {
		free = nil
	}
	return found, free, nil
}

// get returns the entry of key, the zero Entry if there is none.
func (c *console) get(ctx context.Context, key string) (lock.Entry, error) {
	e, err := c.store.Get(ctx, key)
	switch {
	case errors.Is(err, errors.ErrUnsupported):
		// There is one, whose receipt cannot be opened. A list yields it without.
		return c.unopened(ctx, key)
	case err != nil:
		return lock.Entry{}, err
	case e.State == lock.Free:
		return lock.Entry{}, nil
	}
	e.Key = key
	return e, nil
}

// unopened looks for key in the list.
func (c *console) unopened(ctx context.Context, key string) (lock.Entry, error) {
	if inspector, ok := c.store.(lock.Inspector); ok {
		for e, err := range inspector.List(ctx) {
			if e.Key == key {
				return e, nil
			}
			if err != nil && e.Key == "" {
				return lock.Entry{}, err
			}
		}
	}
	return lock.Entry{Key: key}, nil
}

// entryPage is an entry, or that there is none.
type entryPage struct {
	Shown   string
	Entry   *consoleEntry
	Mistake string // of the confirmation
	Look    string // leads here
}

// showEntry answers with one entry.
func (c *console) showEntry(a *consoleAnswer, key, mistake string) {
	if len(key) > lock.MaxKeyBytes {
		a.fail(queryTooLong)
		return
	}
	e, err := c.get(a.r.Context(), key)
	if err != nil {
		a.fail(storeSilent)
		return
	}
	page := entryPage{Shown: visible(key), Mistake: mistake, Look: entryLink(key)}
	if e.Key == "" {
		if !a.html() {
			a.fail(nothingThere)
			return
		}
		a.send(http.StatusOK, "entry", page)
		return
	}
	local := c.locker.Snapshot(maxStep, func(entry string) bool { return entry == key })
	described := describe(&e, &local)
	page.Entry = &described
	status := http.StatusOK
	if mistake != "" {
		status = http.StatusUnprocessableEntity
	}
	a.send(status, "entry", page)
}

// showRecord answers with the record of a request behind Idempotent, whose key is
// a hash that no operator can type.
func (c *console) showRecord(a *consoleAnswer, query url.Values) {
	path, err := url.ParseRequestURI(query.Get("path"))
	if err != nil {
		a.fail(badPath)
		return
	}
	scope, method := query.Get("scope"), strings.ToUpper(query.Get("method"))
	if scope == "" {
		scope = "*" // keyfunc.Global
	}
	if method == "" {
		method = http.MethodPost
	}
	id := identity("idempotent", scope, method, canonicalPath(path), query.Get("id"))
	c.showEntry(a, keytext.Record(id), "")
}
