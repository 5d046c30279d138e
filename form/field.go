package form

import (
	"crypto/rand"
	"html/template"
)

// Field returns a hidden field "once" with a new random key, for a form whose handler is
// behind keyfunc.Form("once"). Call it each time a page is shown, and once for each form.
//
// The page needs "Cache-Control: no-store". A cached page has a key that may have been
// used: its form gets the answer of the first submission, or 422 (key-reused) if its
// content differs. A shared cache would give all users the same key. A guard with the user as
// its scope does not mistake their submissions for repeats.
func Field() template.HTML {
	// Text is base32, which needs no escaping. Without autocomplete="off", a browser that
	// restores the fields of a page would restore an old key.
	return template.HTML(`<input type="hidden" name="once" value="` + rand.Text() + `" autocomplete="off">`) //nolint:gosec // base32 needs no escaping
}
