package keyfunc

import (
	"context"
	"net/http"
)

// Context takes a value that your authentication has put into the request's context:
// Context(auth.UserID), where auth.UserID is a func(context.Context) string. It is the
// only source that a client cannot choose. For a func(context.Context) (string, bool),
// write a function that drops the bool and returns "" for false:
//
//	keyfunc.Context(func(ctx context.Context) string { id, _ := auth.UserID(ctx); return id })
//
// An empty value means that no user is authenticated, or that the middleware is mounted
// outside the authentication: an [*Error] with status 401 that matches [ErrMissing].
// Control characters and values over 1 KiB are refused with 400.
//
// The 401 does not say how to authenticate. As a rule, the authentication outside sends that
// header (WWW-Authenticate). If it does not, return an [*Error] with such a Header from your own
// function.
//
// Context panics on a nil get.
func Context(get func(context.Context) string) Func {
	if get == nil {
		panic("keyfunc.Context: nil function")
	}
	const from = source("context value")
	const cure = "authenticate, and mount the authentication outside this middleware"
	unauthenticated := &Error{Status: http.StatusUnauthorized, Err: from.missingError(cure)}
	return func(r *http.Request) (string, error) {
		value := get(r.Context())
		if value == "" {
			return "", unauthenticated
		}
		return from.check(value, cure)
	}
}
