package middleware

import (
	"cmp"
	"net/http"

	"github.com/httplatch/httplatch/middleware/internal/record"
)

// Respond answers r with p in the format of f, for a handler that refuses its request, as [ProblemOf] describes. r is
// the request of the handler. f can be the function of [WithErrorHandler], and nil stands for ServeHTTP:
//
//	if p := latch.ProblemOf(err); p != nil {
//		p.Respond(w, r, writeRefusal)
//		return
//	}
//
// No guard keeps the answer, whatever its status: neither one around the handler, nor one of a gateway in front of
// this service, if the status is 400 or above. The header Latch-Problem marks the answer for the gateway, and for
// package client. Its value is the [ProblemKind], or "refused" for a problem without one. Respond sets it, and the
// headers that [WithErrorHandler] lists, before it calls f.
func (p *Problem) Respond(w http.ResponseWriter, r *http.Request, f func(w http.ResponseWriter, r *http.Request, p *Problem)) {
	if f == nil {
		f = func(w http.ResponseWriter, r *http.Request, p *Problem) { p.ServeHTTP(w, r) }
	}
	p.writeHeader(w.Header())
	w.Header()[record.ProblemHeader] = []string{cmp.Or(p.mark(), markOfOthers)}
	if requestOf(r.Context()) == nil {
		f(w, r, p) // with the server's own writer
		return
	}
	watched := &record.StatusWriter{ResponseWriter: w}
	f(watched, r, p)
	watched.ImplyOK()
	markRefused(r, watched.Code)
}

// markRefused marks a refusal of r with this status for the guards further out.
func markRefused(r *http.Request, status int) {
	for x := requestOf(r.Context()); x != nil; x = x.outer {
		x.marks.Refused.Store(int32(status)) //nolint:gosec // three digits
	}
}
