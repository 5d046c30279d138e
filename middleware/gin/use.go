package latchgin

import (
	"net/http"

	"github.com/gin-gonic/gin"

	latch "github.com/httplatch/httplatch/middleware"
)

// Use makes a gin middleware of a guard: the result of [latch.Lock], [latch.Idempotent] or
// [latch.Dedupe]. Build the guard once, where routes are set up. A request that the guard
// refuses or replays does not reach the handlers behind it.
//
// It panics on a nil guard. The middleware is safe for concurrent use.
func Use(guard func(http.Handler) http.Handler) gin.HandlerFunc {
	if guard == nil {
		panic("latchgin.Use: nil guard")
	}
	return func(c *gin.Context) {
		u := use{c: c, writer: c.Writer, request: c.Request, errors: len(c.Errors)}
		defer u.restore()
		u.describe()
		guard(http.HandlerFunc(u.next)).ServeHTTP(outside{u.writer}, u.request)
		u.finish()
	}
}

// use is one request on its way through a guard.
type use struct {
	c       *gin.Context
	writer  gin.ResponseWriter // of outer middleware
	request *http.Request
	errors  int // recorded outside

	inside *writer // nil: the guard has answered
	shared *shared // the writer of the handlers
	left   bool    // the answer is left to outer middleware
}

// describe sets Pattern and the path values of the request from the route of gin.
func (u *use) describe() {
	if path := u.c.FullPath(); path != "" {
		u.request.Pattern = path
	}
	for _, p := range u.c.Params {
		u.request.SetPathValue(p.Key, p.Value)
	}
}

// next runs the handlers behind the guard.
func (u *use) next(w http.ResponseWriter, r *http.Request) {
	u.inside = &writer{ResponseWriter: u.writer, w: w, request: r, status: u.writer.Status(), size: unwritten}
	u.shared = &shared{u.inside}
	u.c.Writer, u.c.Request = u.shared, r
	u.c.Next()
	switch {
	case len(u.c.Errors) > u.errors && u.inside.size <= 0:
		u.left = true
		latch.DoNotKeep(r.Context())
	case u.inside.Written():
	case u.inside.set:
		// The header is for the guard. gin sends its own after all middleware has returned.
		u.inside.w.WriteHeader(u.inside.status)
	default:
		u.left = true // the guard notices it
	}
}

// finish leaves the writer of outer middleware as it would be without the guard.
func (u *use) finish() {
	switch {
	case u.inside == nil:
		u.c.Abort()
	case u.inside.Written():
		u.writer.WriteHeaderNow()
	case u.left && u.inside.set:
		u.writer.WriteHeader(u.inside.status)
	}
}

// restore restores the request and the writer of the context. If outer middleware is to write the
// answer, it keeps the writers of inner middleware, as without the guard: a writer that compresses
// must notice that the answer is an error.
func (u *use) restore() {
	u.c.Request = u.request
	if u.left {
		u.shared.ResponseWriter = u.writer
		return
	}
	u.c.Writer = u.writer
}
