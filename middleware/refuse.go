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
	// Whoever keeps answers further out must not keep this one: it says what is
	// so at this moment, and that nothing was done.
	if x := ranOf(r.Context()); x != nil {
		x.refused.Store(true)
	}
	if errors.Is(p.Err, keyfunc.ErrMissing) || p.Status == http.StatusUnauthorized {
		f.hint.Do(func() { hintAtOrder(r.Context(), f.name) })
	}
	p.writeHeader(w.Header())
	if errors.Is(p.Err, lock.ErrClosed) {
		// The client's next request shall go to a process that stays.
		w.Header().Set("Connection", "close")
	}
	s.onError(w, r, p)
}
