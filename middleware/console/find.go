package console

import (
	"net/http"
	"net/url"
	"strings"

	"github.com/httplatch/httplatch/internal/keytext"
	"github.com/httplatch/httplatch/middleware/internal/identity"
)

// showEntry answers with one entry.
func (h *handler) showEntry(a *answer, key, mistake string) {
	if len(key) > keytext.MaxBytes {
		a.fail(queryTooLong)
		return
	}
	e, err := h.get(a.r.Context(), key)
	if err != nil {
		f := storeUnanswered(err)
		f.Look = entryLink(key)
		a.fail(f)
		return
	}
	page := entryPage{Shown: visible(key), Mistake: mistake, Look: entryLink(key), Record: keytext.IsRecord(key), Check: h.check(a.r.Context())}
	if e.Key == "" {
		page.Spelling = h.spellingOf(key)
		if !a.html() {
			f := nothingThere
			if page.Spelling.Unseen != "" {
				f.Advice = "Its name, " + page.Spelling.Unseen + ", was never seen here: is it spelled so?"
			}
			a.fail(f)
			return
		}
		a.send(http.StatusOK, "entry", page)
		return
	}
	local := h.locker.Snapshot(maxStep, func(entry, _ string) bool { return entry == key })
	described := describe(&e, &local)
	page.Entry = &described
	status := http.StatusOK
	if mistake != "" {
		status = http.StatusUnprocessableEntity
	}
	a.send(status, "entry", page)
}

// showRecord answers with the record of a request behind Idempotent, for an operator who knows the
// request: the key of the record is a hash.
func (h *handler) showRecord(a *answer, query url.Values) {
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
	id := identity.Of(identity.Idempotent, scope, method, identity.Path(path), query.Get("id"))
	h.showEntry(a, keytext.Record(id), "")
}
