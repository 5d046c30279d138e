package middleware

import (
	"net/http"
	"slices"
	"strconv"
	"strings"

	"github.com/httplatch/httplatch/keyfunc"
)

// formReport is the cookie that notifies the script of package form of a final answer to the key of
// a form. It is nil for requests without such a cookie.
//
// The page that follows an answer may be on another site, and does not show that there was an
// answer. So the script sets a cookie, named for the key, to "0" when it sends the form, and the
// guard sets it to "1" with each final answer. Other clients never get the cookie.
type formReport http.Cookie

// These names are the same in latch.js.
const (
	formField        = "once"
	formCookiePrefix = "latch-"
)

// formReportAge is in seconds: users may stay on the other site for a long time.
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
	// It is not HttpOnly: the script reads it.
	return &formReport{Name: name, Value: "1", Path: "/", MaxAge: formReportAge, Secure: r.TLS != nil, SameSite: http.SameSiteLaxMode}
}

// add adds the cookie to the headers of a final answer. The cookie is not recorded.
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
