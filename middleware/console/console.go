package console

import (
	"context"
	"net/http"
	"time"

	"github.com/httplatch/httplatch/lock"
)

// New returns the console of l and its store. It is safe for concurrent use. It panics on
// a nil Locker.
func New(l *lock.Locker) http.Handler {
	if l == nil {
		panic("console.New: nil *lock.Locker")
	}
	h := &handler{locker: l, store: l.Store(), origins: http.NewCrossOriginProtection()}
	return http.HandlerFunc(h.serve)
}

// patience bounds the time that one request waits for the store.
const patience = 3 * time.Second

func (h *handler) serve(w http.ResponseWriter, r *http.Request) {
	ctx, cancel := context.WithTimeout(r.Context(), patience)
	defer cancel()
	a := &answer{w: w, r: r.WithContext(ctx), exposed: h.mount.check(r, h.locker.Logger()), logger: h.locker.Logger()}
	a.secure()
	if err := h.origins.Check(r); err != nil {
		a.fail(crossOrigin)
		return
	}
	query := r.URL.Query()
	switch r.Method {
	case http.MethodGet, http.MethodHead:
		switch {
		case query.Has("style"):
			a.style()
		case query.Get("key") != "":
			h.showEntry(a, query.Get("key"), "")
		case query.Get("id") != "":
			h.showRecord(a, query)
		default:
			h.showList(a, query)
		}
	case http.MethodPost:
		h.post(a)
	case http.MethodDelete:
		if query.Has("label") {
			h.deleteLabel(a, query)
			return
		}
		h.free(a, query.Get("key"), query.Get("token"))
	default:
		w.Header().Set("Allow", "GET, HEAD, POST, DELETE")
		a.fail(wrongMethod)
	}
}
