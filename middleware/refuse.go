package middleware

import (
	"errors"
	"net/http"
	"sync"

	"github.com/httplatch/httplatch/keyfunc"
	"github.com/httplatch/httplatch/lock"
)

// refuser answers instead of the handler.
type refuser struct {
	name string // of the guard, for the hint
	hint sync.Once
}

func (f *refuser) refuse(w http.ResponseWriter, r *http.Request, s *settings, p *Problem) {
	if errors.Is(p.Err, keyfunc.ErrMissing) || p.Status == http.StatusUnauthorized {
		f.hint.Do(func() { hintAtOrder(r.Context(), f.name) })
	}
	p.writeHeader(w.Header())
	if errors.Is(p.Err, lock.ErrClosed) {
		// The client's next request shall go to a process that stays.
		w.Header().Set("Connection", "close")
	}
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
