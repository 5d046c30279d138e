package console

import (
	"fmt"
	"strings"
	"time"

	"github.com/httplatch/httplatch/internal/keytext"
	"github.com/httplatch/httplatch/internal/requestinfo"
)

// request is what the record of a request behind Idempotent or Dedupe says of it.
type request struct {
	Guard  string    `json:"guard"`
	Method string    `json:"method"`
	Path   string    `json:"path"`
	Label  string    `json:"label"` // whose it is, or what latch.WithLabel says
	Began  time.Time `json:"began"` // by the clock of the process that began it
}

// requestOf is what owner says of it, nil if it says nothing that can be read.
func requestOf(owner string) *request {
	r, ok := requestinfo.Read(owner)
	if !ok {
		return nil
	}
	return &request{r.Guard, r.Method, r.Path, r.Label, r.Began.UTC()}
}

// What says which one it is.
func (r *request) What() string {
	text := visible(r.Method + " " + r.Path)
	if r.Label != "" {
		text += " of " + r.Shown()
	}
	return text
}

// Shown is the label as it is shown, and typed.
func (r *request) Shown() string { return shownLabel(r.Label) }

// shownLabel is label as it is shown: that of a joined scope as in the keys of locks, without
// the mark at its beginning.
func shownLabel(label string) string {
	return visible(strings.TrimPrefix(label, string(keytext.Marker)))
}

// Whose leads to all that is kept under its label.
func (r *request) Whose() string {
	return answersLink(r.Label)
}

// When is when it began.
func (r *request) When() string {
	return fmt.Sprintf("%s UTC, %s ago", r.Began.Format(time.DateTime), ago(r.Began))
}

// has reports whether an operator who looks for text, which is in lower case, means r.
func (r *request) has(text string) bool {
	for _, own := range [...]string{r.Label, r.Path, r.Guard} {
		if strings.Contains(strings.ToLower(own), text) || strings.Contains(strings.ToLower(shownLabel(own)), text) {
			return true
		}
	}
	return false
}
