package console

import (
	"context"
	"encoding/base64"
	"errors"
	"log/slog"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/httplatch/httplatch/internal/keytext"
	"github.com/httplatch/httplatch/internal/requestinfo"
	"github.com/httplatch/httplatch/lock"
	"github.com/httplatch/httplatch/middleware/internal/record"
)

// Erase removes the stored answers of requests behind Idempotent and Dedupe with this label: the
// scope, mostly the user ID, or the text of latch.WithLabel. For a scope of keyfunc.Join, pass its
// parts in order: Erase(ctx, l, tenant, user). A later repeat of such a request runs as if it were
// new. The records of running requests, and of requests of unknown outcome, stay. left counts
// them. If both numbers are 0, no record has the label, and the Locker's logger has a warning. Over a
// sealed store, a process without the key finds no record.
//
// Erase reads all entries of the store, in steps of 1,000. If the store fails or ctx
// ends, it returns the counts so far with the store's error, or the cause of ctx. An
// error that matches errors.ErrUnsupported says that the store cannot list. It erases nothing for an
// empty label, which all requests without a label have. Answers that are stored during Erase may stay,
// also those that wait for the store (lock_reaper_backlog): call it when the user can no longer send requests, and
// nothing waits.
func Erase(ctx context.Context, l *lock.Locker, label string, parts ...string) (erased, left int, err error) {
	label = labelOf(append([]string{label}, parts...))
	if label == "" {
		return 0, 0, errors.New("console.Erase: an empty label")
	}
	h := &handler{locker: l, store: l.Store()}
	done, err := h.erase(ctx, label, "")
	if err == nil && done.Erased+done.Left == 0 {
		l.Logger().LogAttrs(ctx, slog.LevelWarn, "httplatch: no stored answers have this label", slog.String("label_sha256", keytext.Digest(done.label)),
			slog.String("do", "if there should be some, compare the label with that of an entry in the console; each part of a joined scope is an argument of its own"))
	}
	return done.Erased, done.Left, err
}

// labelOf returns the label of a scope with these parts.
func labelOf(parts []string) string {
	if len(parts) == 1 {
		return parts[0]
	}
	return keytext.Join(parts...)
}

// erasure is the progress of an erasure.
type erasure struct {
	Label  string `json:"label"` // for display
	Erased int    `json:"erased"`
	Left   int    `json:"left"` // requests that run, or have an unknown outcome
	Next   string `json:"next,omitempty"`
	label  string
}

func erasureOf(label string) erasure { return erasure{Label: shownLabel(label), label: label} }

// FormLabel encodes the label for a form.
func (e erasure) FormLabel() string { return formField(e.label) }

// Look leads to the entries that are left.
func (e erasure) Look() string {
	return answersLink(e.Label)
}

// erase goes on from cursor, until ctx ends or all entries were read.
func (h *handler) erase(ctx context.Context, label, cursor string) (done erasure, err error) {
	done = erasureOf(label)
	defer func() { h.logErased(ctx, done) }()
	for w := h.walkFrom(cursor); ; {
		page, err := w.step(ctx, maxStep, keytext.IsRecord)
		if err != nil {
			return done, err
		}
		page = slices.DeleteFunc(page, func(e lock.Entry) bool {
			r := requestOf(e.Owner)
			return r == nil || r.Label != requestinfo.Short(label)
		})
		for i := range page {
			// Only the receipt of the record, also of a step's, may show that the outcome is unknown.
			key, _, _ := keytext.CutStep(page[i].Key)
			of, err := h.get(ctx, key)
			if err != nil {
				return done, err
			}
			if of.State == lock.Held || of.State == lock.Abandoned || string(of.Receipt) == record.Unknown {
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

// postErase serves the page's form.
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

// soFar returns a count of the erasure so far, which the form has only for display.
func soFar(a *answer, field string) int {
	n, _ := strconv.Atoi(a.r.PostForm.Get(field))
	return max(n, 0)
}

// deleteLabel serves scripts. A repeated label is the parts of a joined one.
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

// eraseLabel goes on from before for as long as a request may, and reports its progress.
func (h *handler) eraseLabel(a *answer, before erasure) {
	ctx, cancel := context.WithTimeout(a.r.Context(), searchTime)
	defer cancel()
	done, err := h.erase(ctx, before.label, before.Next)
	done.Erased, done.Left = done.Erased+before.Erased, done.Left+before.Left
	switch {
	case err == nil, ctx.Err() != nil && done.Next != "" && done.Next != before.Next:
		a.send(http.StatusOK, "erased", done)
	default:
		f := storeUnanswered(err)
		f.Look = done.Look()
		a.fail(f)
	}
}
