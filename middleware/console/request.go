package console

import (
	"fmt"
	"strings"
	"time"

	"github.com/httplatch/httplatch/internal/keytext"
	"github.com/httplatch/httplatch/internal/requestinfo"
)

// request describes the request of a record, behind Idempotent or Dedupe.
type request struct {
	Guard  string    `json:"guard"`
	Method string    `json:"method"`
	Path   string    `json:"path"`
	Label  string    `json:"label"` // the scope, or the text of latch.WithLabel
	Began  time.Time `json:"began"` // by the clock of the process that began it
}

// requestOf returns the description in owner, nil if there is none that can be read.
func requestOf(owner string) *request {
	r, ok := requestinfo.Read(owner)
	if !ok {
		return nil
	}
	return &request{r.Guard, r.Method, r.Path, r.Label, r.Began.UTC()}
}

// What names the request.
func (r *request) What() string {
	text := visible(r.Method + " " + r.Path)
	if r.Label != "" {
		text += " of " + r.Shown()
	}
	return text
}

// Shown returns the label for display, and for typing.
func (r *request) Shown() string { return shownLabel(r.Label) }

// shownLabel returns label for display. A joined scope is shown as in the keys of locks, without
// the separator at its beginning.
func shownLabel(label string) string {
	return visible(strings.TrimPrefix(label, string(keytext.Marker)))
}

// Whose leads to everything that is kept under the label.
func (r *request) Whose() string {
	return answersLink(r.Label)
}

// When says when it began.
func (r *request) When() string {
	return fmt.Sprintf("%s UTC, %s ago", r.Began.Format(time.DateTime), ago(r.Began))
}

// has reports whether label, path or guard contain text, which is in lower case.
func (r *request) has(text string) bool {
	for _, own := range [...]string{r.Label, r.Path, r.Guard} {
		if strings.Contains(strings.ToLower(own), text) || strings.Contains(strings.ToLower(shownLabel(own)), text) {
			return true
		}
	}
	return false
}
