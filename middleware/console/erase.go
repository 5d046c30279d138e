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

	"github.com/httplatch/httplatch/internal/about"
	"github.com/httplatch/httplatch/internal/keytext"
	"github.com/httplatch/httplatch/lock"
)

// Erase removes the stored answers of requests behind Idempotent and Dedupe whose label
// is label: the scope, mostly the user ID, or what latch.WithLabel says. A repeat of such a
// request runs as if it were new. Requests that run, and those whose outcome is unknown,
// stay; left is how many there are.
//
// It looks through all that the store keeps, in steps of 1,000 entries, and returns what
// it has done with the store's error, or the cause of the end of ctx. An error that matches
// errors.ErrUnsupported says that the store cannot list. Answers that are stored meanwhile
// may stay: call it when the user can send no more.
func Erase(ctx context.Context, l *lock.Locker, label string) (erased, left int, err error) {
	h := &handler{locker: l, store: l.Store()}
	done, err := h.erase(ctx, label, "")
	return done.Erased, done.Left, err
}

// erasure is how far an erasure has come.
type erasure struct {
	Label  string `json:"label"`
	Erased int    `json:"erased"`
	Left   int    `json:"left"` // requests that run, or whose outcome is unknown
	Next   string `json:"next,omitempty"`
}

// Shown is the label as it is shown.
func (e erasure) Shown() string { return visible(e.Label) }

// FormLabel goes through a form.
func (e erasure) FormLabel() string { return formField(e.Label) }

// Look leads to what is left.
func (e erasure) Look() string {
	return (&list{Query: e.Label, Limit: defaultEntries, Answers: true}).First()
}

// erase goes on from cursor, until ctx ends or all is looked through.
func (h *handler) erase(ctx context.Context, label, cursor string) (done erasure, err error) {
	done.Label = label
	defer func() { h.logErased(ctx, done) }()
	for w := h.walkFrom(cursor); ; {
		page, err := w.step(ctx, h.store, maxStep, keytext.IsRecord)
		if err != nil {
			return done, err
		}
		page = slices.DeleteFunc(page, func(e lock.Entry) bool {
			r := requestOf(e.Owner)
			return r == nil || r.Label != about.Short(label)
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
		slog.String("label_sha256", keytext.Digest(done.Label)), slog.Int("erased", done.Erased), slog.Int("left", done.Left))
}

// postErase is for the page's form.
func (h *handler) postErase(a *answer) {
	label, err := base64.RawURLEncoding.DecodeString(a.r.PostForm.Get("label"))
	if err != nil || len(label) == 0 {
		a.fail(badForm)
		return
	}
	typed := strings.TrimSpace(a.r.PostForm.Get("confirm"))
	if typed == "" || typed != strings.TrimSpace(visible(string(label))) {
		f := notErased
		f.Look = erasure{Label: string(label)}.Look()
		a.fail(f)
		return
	}
	h.eraseLabel(a, erasure{
		Label: string(label), Next: a.r.PostForm.Get("after"), Erased: soFar(a, "erased"), Left: soFar(a, "left"),
	})
}

// soFar is what the form says that its erasure had come to. It is only shown.
func soFar(a *answer, field string) int {
	n, _ := strconv.Atoi(a.r.PostForm.Get(field))
	return max(n, 0)
}

// deleteLabel is for scripts.
func (h *handler) deleteLabel(a *answer, query url.Values) {
	if query.Get("label") == "" {
		a.fail(badDelete)
		return
	}
	h.eraseLabel(a, erasure{Label: query.Get("label"), Next: query.Get("after")})
}

// eraseLabel goes on from before for as long as a request may, and says how far it came.
func (h *handler) eraseLabel(a *answer, before erasure) {
	ctx, cancel := context.WithTimeout(a.r.Context(), searchTime)
	defer cancel()
	done, err := h.erase(ctx, before.Label, before.Next)
	done.Erased, done.Left = done.Erased+before.Erased, done.Left+before.Left
	switch {
	case err == nil, ctx.Err() != nil && done.Next != "" && done.Next != before.Next:
		a.send(http.StatusOK, "erased", done)
	default:
		f := storeSilent
		f.Look = done.Look()
		a.fail(f)
	}
}
