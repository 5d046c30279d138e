package form

import (
	"crypto/rand"
	"html/template"
)

// Field returns a hidden field "once" with a new random key, for a form whose handler
// is behind keyfunc.Form("once"). Call it each time a page is shown, and once for each form.
//
// The page needs "Cache-Control: no-store". Out of a cache, it comes with a key that may
// have been used: what is sent then gets the answer of the first submission, or, if
// something else is in the form, 422 (key-reused). A cache that users share
// would give all of them one key, which a guard whose scope is the user keeps apart.
func Field() template.HTML {
	// Text is base32, which needs no escaping. Browsers that restore the fields of a page
	// would bring an old key back, unless autocomplete is off.
	return template.HTML(`<input type="hidden" name="once" value="` + rand.Text() + `" autocomplete="off">`) //nolint:gosec // as above
}
