package middleware

import (
	"context"
	"net/http"

	"github.com/httplatch/httplatch/internal/oncecall"
)

// copyOf is a guard's own copy of its caller's request: a key function that
// reads the body replaces it, and the caller's request is not ours to change.
// The handler gets the same copy. It has room for the call of Locker.Once, in one
// allocation.
func copyOf(r *http.Request) (*http.Request, *oncecall.Call) {
	own := new(struct {
		http.Request

		call oncecall.Call
	})
	own.Request = *r
	return &own.Request, &own.call
}

// setContext gives an own request that no handler has seen yet the context that
// handlers are to see. net/http has no other way to do that than a copy, which
// is put in the place of the original here.
func setContext(ctx context.Context, own *http.Request) { *own = *own.WithContext(ctx) }

// returnForm gives the files of a multipart form that the handler has parsed to
// the request of net/http, which removes those of its own request only.
func returnForm(r, own *http.Request) {
	if r.MultipartForm == nil {
		r.MultipartForm = own.MultipartForm
	}
}
