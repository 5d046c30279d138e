package middleware

import (
	"net/http"
	"slices"
	"strconv"
	"strings"

	"github.com/httplatch/httplatch/keyfunc"
)

// formReport is the cookie by which the script of package form learns that an answer to
// the key of a form was final. It is nil for requests that need none.
//
// The page that follows an answer may be on another site, and says nothing of the answer.
// So the script sets a cookie, named for the key, to "0" when it sends the form,
// and the guard sets it to "1" with each final answer. Other clients never get it.
type formReport http.Cookie

// What latch.js has too.
const (
	formField        = "once"
	formCookiePrefix = "latch-"
)

// formReportAge is for users who stay on the other site for long, in seconds.
const formReportAge = 24 * 60 * 60

// formReportFor returns the report for r. It may read the body, which can be read again.
func formReportFor(r *http.Request) *formReport {
	if !slices.ContainsFunc(r.Header["Cookie"], func(line string) bool { return strings.Contains(line, formCookiePrefix) }) {
		return nil
	}
	key, err := keyfunc.Form(formField)(r)
	if err != nil {
		return nil
	}
	name := formCookiePrefix + strconv.FormatUint(uint64(formHash(key)), 10)
	if _, err := r.Cookie(name); err != nil {
		return nil
	}
	// The script reads it, so it is not HttpOnly.
	return &formReport{Name: name, Value: "1", Path: "/", MaxAge: formReportAge, Secure: r.TLS != nil, SameSite: http.SameSiteLaxMode}
}

// add adds the report to the headers of a final answer. No record keeps it.
func (f *formReport) add(h http.Header) {
	if f != nil {
		h["Set-Cookie"] = append(slices.Clip(h["Set-Cookie"]), (*http.Cookie)(f).String())
	}
}

// formHash is FNV-1a over characters, beginning with 0.
func formHash(s string) (sum uint32) {
	for _, c := range s {
		sum = (sum ^ uint32(c)) * 16777619 //nolint:gosec // no character is negative
	}
	return sum
}
