package middleware

import (
	"context"
	"net/http"

	"github.com/httplatch/httplatch/internal/oncecall"
)

// copyOf is a guard's own copy of its caller's request: a key function that
// reads the body replaces it, and the caller's request is not ours to change.
// The handler gets the same copy. It has room for the execution and its call of
// Locker.Once, in one allocation.
func copyOf(r *http.Request) (*http.Request, *execution) {
	own := new(struct {
		http.Request

		call oncecall.Call
		x    execution
	})
	own.Request = *r
	own.x.call, own.call.Work = &own.call, &own.x
	return &own.Request, &own.x
}

// setContext gives an own request that no handler has seen yet the context that
// handlers are to see. net/http has no other way to do that than a copy, which
// is put in the place of the original here.
func setContext(ctx context.Context, own *http.Request) { *own = *own.WithContext(ctx) }

// handBack gives the request of the guard's caller what its handler has left in the own one,
// and would have left in that: the files of a multipart form, because net/http removes
// those of its own request only, and the pattern of a router inside the guard, for an access
// log outside. Nothing else is changed, because others may still read the request of the
// caller.
func handBack(r, own *http.Request) {
	if r.MultipartForm == nil {
		r.MultipartForm = own.MultipartForm
	}
	if r.Pattern != own.Pattern {
		r.Pattern = own.Pattern
	}
}
