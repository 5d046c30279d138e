package console

import (
	"context"
	"net/http"
	"time"

	"github.com/httplatch/httplatch/lock"
)

// New returns the console of l and its store. It is safe for concurrent use. It panics on
// a nil Locker, and on a nil Option.
func New(l *lock.Locker, opts ...Option) http.Handler {
	if l == nil {
		panic("console.New: nil *lock.Locker")
	}
	h := &handler{locker: l, store: l.Store(), origins: http.NewCrossOriginProtection()}
	for _, o := range opts {
		if o == nil {
			panic("console.New: nil Option")
		}
		o(h)
	}
	return http.HandlerFunc(h.serve)
}

// Option is a setting of [New].
type Option func(*handler)

// WithName shows name on each page, and in its title: the service, and the environment in which it
// runs, such as "orders, production". Without it, two tabs of a browser look alike. The default is no name.
func WithName(name string) Option { return func(h *handler) { h.name = visible(name) } }

// patience bounds the time that one request waits for the store.
const patience = 3 * time.Second

func (h *handler) serve(w http.ResponseWriter, r *http.Request) {
	ctx, cancel := context.WithTimeout(r.Context(), patience)
	defer cancel()
	a := &answer{w: w, r: r.WithContext(ctx), name: h.name, exposed: h.mount.check(r, h.locker.Logger()), logger: h.locker.Logger()}
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
		case query.Has("unfinished"):
			h.showUnfinished(a)
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
		h.free(a, query.Get("key"), query.Get("token"), true)
	default:
		w.Header().Set("Allow", "GET, HEAD, POST, DELETE")
		a.fail(wrongMethod)
	}
}
