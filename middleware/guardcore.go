package middleware

import (
	"net/http"
	"reflect"

	"github.com/httplatch/httplatch/internal/coverage"
	"github.com/httplatch/httplatch/internal/httpmethod"
	"github.com/httplatch/httplatch/keyfunc"
	"github.com/httplatch/httplatch/lock"
	"github.com/httplatch/httplatch/middleware/internal/hint"
)

// guardCore is what every guard shares.
type guardCore struct {
	locker *lock.Locker
	hints  hint.Hints
}

// wrap returns next behind the guard. serve gets the requests whose method is not safe.
func (g *guardCore) wrap(next http.Handler, serve func(http.ResponseWriter, *http.Request, http.Handler)) http.Handler {
	timesOut := hint.IsTimeoutHandler(next)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if httpmethod.Safe(r.Method) {
			next.ServeHTTP(w, r)
			return
		}
		if coverage.Asked(r.Context()) {
			return
		}
		if timesOut {
			g.hints.Outlived(r.Context())
		}
		serve(w, r, next)
	})
}

// valueOf returns the value of f for r. An empty value is [keyfunc.ErrMissing].
func valueOf(f keyfunc.Func, r *http.Request) (string, error) {
	value, err := f(r)
	if err == nil && value == "" {
		err = keyfunc.ErrMissing
	}
	return value, err
}

// handBack copies two things that the handler has left in the guard's own request to r, the
// request of the guard's caller: the files of a multipart form, because net/http removes only the
// files of r, and the pattern of a router inside the guard, for an access log outside. Nothing
// else changes, because other goroutines may still read r.
func handBack(r, own *http.Request) {
	if r.MultipartForm == nil {
		r.MultipartForm = own.MultipartForm
	}
	if r.Pattern != own.Pattern {
		r.Pattern = own.Pattern
	}
}

// sameStore compares stores of any type, also types for which == panics.
func sameStore(a, b lock.Store) bool { return reflect.ValueOf(a).Comparable() && a == b }
