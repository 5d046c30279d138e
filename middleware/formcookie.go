package middleware

import (
	"net/http"
	"slices"
	"strconv"
	"strings"

	"github.com/httplatch/httplatch/keyfunc"
)

// These names are the same in form/latch.js.
const (
	formField        = "once"
	formCookiePrefix = "latch-"
)

// formCookie returns the cookie that notifies the script of package form of a final answer to the key of the form of
// r, "" for requests without such a cookie. It may read the body, which can be read again.
//
// The page after an answer may be on another site, and does not show that there was an answer. So the script sets a
// cookie, named for the key, to "0" when it sends the form, and the guard sets it to "1" with each final answer.
func formCookie(r *http.Request) string {
	if !slices.ContainsFunc(r.Header["Cookie"], func(line string) bool { return strings.Contains(line, formCookiePrefix) }) {
		return ""
	}
	key, err := keyfunc.Form(formField)(r)
	if err != nil {
		return ""
	}
	name := formCookiePrefix + strconv.FormatUint(uint64(formHash(key)), 10)
	if _, err := r.Cookie(name); err != nil {
		return ""
	}
	const age = 24 * 60 * 60 // in seconds: users may stay on the other site for a long time
	//nolint:gosec // it is not HttpOnly, because the script reads it, and Secure as far as the request is
	c := http.Cookie{Name: name, Value: "1", Path: "/", MaxAge: age, Secure: r.TLS != nil, SameSite: http.SameSiteLaxMode}
	return c.String()
}

// formHash is FNV-1a over characters, beginning with 0.
func formHash(s string) (sum uint32) {
	for _, c := range s {
		sum = (sum ^ uint32(c)) * 16777619 //nolint:gosec // no character is negative
	}
	return sum
}
