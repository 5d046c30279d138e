package console

import (
	"context"
	"encoding/base64"
	"log/slog"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/httplatch/httplatch/internal/keytext"
	"github.com/httplatch/httplatch/internal/requestinfo"
	"github.com/httplatch/httplatch/lock"
)

// Erase removes the stored answers of requests behind Idempotent and Dedupe whose label
// is label: the scope, mostly the user ID, or what latch.WithLabel says. A scope of
// keyfunc.Join is given by its parts, in order: Erase(ctx, l, tenant, user). A repeat of such
// a request runs as if it were new. Requests that run, and those whose outcome is unknown,
// stay; left is how many there are. If both numbers are 0, nothing has the label, and the
// Locker's logger has a warning.
//
// It looks through all that the store keeps, in steps of 1,000 entries, and returns what
// it has done with the store's error, or the cause of the end of ctx. An error that matches
// errors.ErrUnsupported says that the store cannot list. Answers that are stored meanwhile
// may stay: call it when the user can send no more.
func Erase(ctx context.Context, l *lock.Locker, label string, parts ...string) (erased, left int, err error) {
	h := &handler{locker: l, store: l.Store()}
	done, err := h.erase(ctx, labelOf(append([]string{label}, parts...)), "")
	if err == nil && done.Erased+done.Left == 0 {
		l.Logger().LogAttrs(ctx, slog.LevelWarn, "httplatch: no stored answers have this label", slog.String("label_sha256", keytext.Digest(done.label)),
			slog.String("do", "if there should be some, compare the label with that of an entry in the console; each part of a joined scope is an argument of its own"))
	}
	return done.Erased, done.Left, err
}

// labelOf is the label of a scope of one value, or of several that are joined.
func labelOf(parts []string) string {
	if len(parts) == 1 {
		return parts[0]
	}
	return keytext.Join(parts...)
}

// erasure is how far an erasure has come.
type erasure struct {
	Label  string `json:"label"` // as it is shown
	Erased int    `json:"erased"`
	Left   int    `json:"left"` // requests that run, or whose outcome is unknown
	Next   string `json:"next,omitempty"`
	label  string
}

func erasureOf(label string) erasure { return erasure{Label: shownLabel(label), label: label} }

// FormLabel goes through a form.
func (e erasure) FormLabel() string { return formField(e.label) }

// Look leads to what is left.
func (e erasure) Look() string {
	return answersLink(e.Label)
}

// erase goes on from cursor, until ctx ends or all is looked through.
func (h *handler) erase(ctx context.Context, label, cursor string) (done erasure, err error) {
	done = erasureOf(label)
	defer func() { h.logErased(ctx, done) }()
	for w := h.walkFrom(cursor); ; {
		page, err := w.step(ctx, h.store, maxStep, keytext.IsRecord)
		if err != nil {
			return done, err
		}
		page = slices.DeleteFunc(page, func(e lock.Entry) bool {
			r := requestOf(e.Owner)
			return r == nil || r.Label != requestinfo.Short(label)
		})
		for i := range page {
			if !storedAnswer(page[i]) {
				done.Left++
				continue
			}
			ok, err := h.forget(ctx, page[i].Key, page[i].Token)
			if err != nil {
				return done, err
			}
			if ok {
				done.Erased++
			}
		}
		if done.Next = w.cursor; done.Next == "" {
			return done, nil
		}
	}
}

func (h *handler) logErased(ctx context.Context, done erasure) {
	h.locker.Logger().LogAttrs(ctx, slog.LevelInfo, "httplatch: stored answers were erased",
		slog.String("label_sha256", keytext.Digest(done.label)), slog.Int("erased", done.Erased), slog.Int("left", done.Left))
}

// postErase is for the page's form.
func (h *handler) postErase(a *answer) {
	label, err := base64.RawURLEncoding.DecodeString(a.r.PostForm.Get("label"))
	if err != nil || len(label) == 0 {
		a.fail(badForm)
		return
	}
	typed := strings.TrimSpace(a.r.PostForm.Get("confirm"))
	if typed == "" || typed != strings.TrimSpace(shownLabel(string(label))) {
		f := notErased
		f.Look = erasureOf(string(label)).Look()
		a.fail(f)
		return
	}
	before := erasureOf(string(label))
	before.Next, before.Erased, before.Left = a.r.PostForm.Get("after"), soFar(a, "erased"), soFar(a, "left")
	h.eraseLabel(a, before)
}

// soFar is what the form says that its erasure had come to. It is only shown.
func soFar(a *answer, field string) int {
	n, _ := strconv.Atoi(a.r.PostForm.Get(field))
	return max(n, 0)
}

// deleteLabel is for scripts. A label that is repeated is the parts of a joined one.
func (h *handler) deleteLabel(a *answer, query url.Values) {
	label := labelOf(query["label"])
	if label == "" {
		a.fail(badDelete)
		return
	}
	before := erasureOf(label)
	before.Next = query.Get("after")
	h.eraseLabel(a, before)
}

// eraseLabel goes on from before for as long as a request may, and says how far it came.
func (h *handler) eraseLabel(a *answer, before erasure) {
	ctx, cancel := context.WithTimeout(a.r.Context(), searchTime)
	defer cancel()
	done, err := h.erase(ctx, before.label, before.Next)
	done.Erased, done.Left = done.Erased+before.Erased, done.Left+before.Left
	switch {
	case err == nil, ctx.Err() != nil && done.Next != "" && done.Next != before.Next:
		a.send(http.StatusOK, "erased", done)
	default:
		f := storeAway(err)
		f.Look = done.Look()
		a.fail(f)
	}
}
