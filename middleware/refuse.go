package middleware

import (
	"context"
	"errors"
	"net/http"
	"sync"

	"github.com/httplatch/httplatch/internal/bodybuf"
	"github.com/httplatch/httplatch/keyfunc"
)

// refuser answers instead of the handler.
type refuser struct {
	guardLog
	missing  sync.Once // a key
	consumed sync.Once // a body
	failed   rareLog   // functions
	early    rareLog   // answers
}

// refuse answers r, which is a guard's own request, with p.
func (f *refuser) refuse(w http.ResponseWriter, r *http.Request, s *settings, p *Problem) {
	f.report(r.Context(), p)
	p.once = s.once
	bodybuf.Rewind(r) // a function that WithErrorHandler has set may read it
	p.writeHeader(w.Header())
	if ranOf(r.Context()) == nil {
		s.onError(w, r, p)
		return
	}
	watched := &statusWriter{ResponseWriter: w}
	s.onError(watched, r, p)
	watched.implyOK()
	keepOut(r, watched.status)
}

// keepOut says that an answer of this status to r is not to be kept further out:
// it says what is so at this moment, and that nothing was done.
func keepOut(r *http.Request, status int) {
	for kept := ranOf(r.Context()); kept != nil; kept = kept.outer {
		kept.refused.Store(int32(status)) //nolint:gosec // three digits
	}
}

// report logs a refusal that may be the server's own fault.
func (f *refuser) report(ctx context.Context, p *Problem) {
	switch {
	case errors.Is(p.Err, keyfunc.ErrMissing) || p.Status == http.StatusUnauthorized:
		f.missing.Do(func() { f.hintAtMissing(ctx, p.Err) })
	case p.Status != http.StatusInternalServerError:
	case errors.Is(p.Err, bodybuf.ErrConsumed):
		f.consumed.Do(func() { f.hintAtConsumed(ctx, p.Err) })
	case p.Kind() == ProblemRolledBack:
		f.logEarly(ctx, p)
	case p.Kind() == ProblemKeyFailed && ctx.Err() == nil: // a client that has gone may fail what asks for its sake
		f.failed.log(ctx, &f.guardLog, "requests are refused because a function that the guard was given failed", p.Err)
	}
}

// logEarly reports an answer that is too long for a transaction. What the database did not
// commit, the Locker reports.
func (f *refuser) logEarly(ctx context.Context, p *Problem) {
	if early, ok := errors.AsType[*earlyError](p.Err); ok {
		f.early.log(ctx, &f.guardLog, "an answer was replaced by 500, and its work rolled back; raise the second limit of WithBodyLimits, "+
			"or serve what streams, or takes over its connection, by a Locker without WithTransaction", early)
	}
}
