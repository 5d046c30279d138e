package latchcaddy

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp/rewrite"

	"github.com/httplatch/httplatch/internal/httpmethod"
	"github.com/httplatch/httplatch/lock"
)

// Handler guards the handlers behind it.
type Handler struct {
	// The guards, the outermost first: objects with the fields of package policy, and the name of
	// the guard in "guard". {"kind": "refuse"} refuses requests with an Idempotency-Key.
	Guards []json.RawMessage `json:"guards,omitempty"`

	// The requests that are guarded; all unless set. The matchers see the URL that the client has asked
	// for, without a prefix that handle_path or "uri strip_prefix" has stripped, and not what
	// try_files, php_fastcgi or rewrite have made of it.
	MatcherSetsRaw caddyhttp.RawMatcherSets `json:"match,omitempty" caddy:"namespace=http.matchers"`

	matchers caddyhttp.MatcherSets
	strips   [][]*rewrite.Rewrite // before this place; several if a named route has it
	parsed   []guard              // the outermost first
	chain    http.Handler         // all guards, and deliver behind them; nil: there is no app
}

// CaddyModule is part of [caddy.Module].
func (Handler) CaddyModule() caddy.ModuleInfo {
	return caddy.ModuleInfo{ID: "http.handlers.latch", New: func() caddy.Module { return new(Handler) }}
}

// Provision reads the guards. The App makes them: it has their store.
func (h *Handler) Provision(ctx caddy.Context) error {
	if len(h.Guards) == 0 {
		return errNoGuard
	}
	loaded, err := ctx.LoadModule(h, "MatcherSetsRaw")
	if err != nil {
		return fmt.Errorf("latch: matchers: %w", err)
	}
	if err := h.matchers.FromInterface(loaded); err != nil {
		return fmt.Errorf("latch: matchers: %w", err)
	}
	var errs []error
	for _, raw := range h.Guards {
		g, err := guardOf(raw)
		h.parsed, errs = append(h.parsed, g), append(errs, err)
	}
	if err := errors.Join(errs...); err != nil {
		return err
	}
	return check(h.parsed)
}

// use makes the guards over l.
func (h *Handler) use(l *lock.Locker) error {
	chain := http.Handler(http.HandlerFunc(deliver))
	for _, g := range slices.Backward(h.parsed) {
		wrap, err := g.build(l)
		if err != nil {
			return err
		}
		chain = wrap(chain)
	}
	h.chain = chain
	return nil
}

var (
	errNoGuard = errors.New("latch: there is no guard: add idempotent, dedupe, lock or refuse")
	errNoApp   = errors.New(`latch: the configuration has no app "latch", or this guard is in a module that hides its routes`)
)

// guards reports whether the handlers behind h run under a guard.
func (h *Handler) guards() bool {
	return slices.ContainsFunc(h.parsed, func(g guard) bool { return g.kind != kindRefuse })
}

// exchange is one guarded request.
type exchange struct {
	next caddyhttp.Handler
	url  *url.URL     // of the server's request: rewrites change it in place, and placeholders read it
	err  error        // of next
	sent []*Transport // through which the request may have left
}

// exchangeKey is the key of the innermost exchange in a context.
type exchangeKey struct{}

func exchangeOf(ctx context.Context) *exchange {
	x, _ := ctx.Value(exchangeKey{}).(*exchange)
	return x
}

// with calls f, for which placeholders have the URL u.
func (x *exchange) with(u *url.URL, f func()) {
	rewritten := *x.url
	*x.url = *u
	defer func() { *x.url = rewritten }()
	f()
}

// ServeHTTP is part of [caddyhttp.MiddlewareHandler]. For the guards, the request has the URL that
// the client has asked for: a front controller like index.php is one URL for all routes.
func (h *Handler) ServeHTTP(w http.ResponseWriter, r *http.Request, next caddyhttp.Handler) error {
	if httpmethod.Safe(r.Method) {
		return next.ServeHTTP(w, r)
	}
	x := &exchange{next: next, url: r.URL}
	asked := r.WithContext(context.WithValue(r.Context(), exchangeKey{}, x))
	if original, ok := r.Context().Value(caddyhttp.OriginalRequestCtxKey).(http.Request); ok {
		u := *original.URL
		asked.URL = &u
	}
	if guarded, err := h.matches(x, asked); err != nil || !guarded {
		if err == nil {
			err = next.ServeHTTP(w, r)
		}
		return err
	}
	if h.chain == nil {
		return caddyhttp.Error(http.StatusServiceUnavailable, errNoApp)
	}
	out := &errorWriter{ResponseWriter: w}
	h.chain.ServeHTTP(out, asked)
	switch {
	case out.failed == 0:
		return nil
	case x.err != nil:
		return x.err
	default:
		return caddyhttp.Error(out.failed, errReplayed)
	}
}

// matches reports whether the matchers accept the request.
func (h *Handler) matches(x *exchange, asked *http.Request) (guarded bool, err error) {
	if len(h.matchers) == 0 {
		return true, nil
	}
	seen := asked
	replacer, _ := asked.Context().Value(caddy.ReplacerCtxKey).(*caddy.Replacer)
	for _, strips := range h.strips {
		u := *asked.URL
		stripped := asked.WithContext(asked.Context())
		stripped.URL = &u
		for _, strip := range strips {
			strip.Rewrite(stripped, replacer)
		}
		// The prefixes of another place that invokes the route are not in the path.
		if len(u.Path) < len(seen.URL.Path) {
			seen = stripped
		}
	}
	x.with(seen.URL, func() { guarded, err = h.matchers.AnyMatchWithError(seen) })
	return guarded, err
}

var errReplayed = errors.New("latch: the first request with this key has failed with this status")

// deliver runs the handlers behind the guards. For the guards, an error of these handlers is an
// answer, which they keep or do not keep like other answers.
func deliver(w http.ResponseWriter, r *http.Request) {
	x := exchangeOf(r.Context())
	asked := r.URL // r is the guards' own
	r.URL = x.url
	defer func() { r.URL = asked }()
	if x.err = x.next.ServeHTTP(w, r); x.err == nil {
		return
	}
	status := http.StatusInternalServerError
	if failure, ok := errors.AsType[caddyhttp.HandlerError](x.err); ok && failure.StatusCode >= 400 {
		status = failure.StatusCode
	}
	w.Header().Set(failedHeader, "1")
	w.WriteHeader(status)
}

// failedHeader marks an answer as an error of a handler of Caddy. It is not sent to clients, and
// the transport removes it from the answers of upstreams.
const failedHeader = "Latch-Failed"

// errorWriter leaves errors of handlers to Caddy, which writes their answers.
type errorWriter struct {
	http.ResponseWriter

	failed int // the status of the error; 0: there is none
}

// WriteHeader is part of [http.ResponseWriter].
func (w *errorWriter) WriteHeader(status int) {
	header := w.Header()
	if status < 200 || len(header[failedHeader]) == 0 {
		w.ResponseWriter.WriteHeader(status)
		return
	}
	w.failed = status
	header.Del(failedHeader)
	header.Del("Content-Length") // of the answer that Caddy replaces
}

// Write is part of [http.ResponseWriter].
func (w *errorWriter) Write(b []byte) (int, error) {
	if w.failed != 0 {
		return len(b), nil
	}
	return w.ResponseWriter.Write(b)
}

// FlushError is called by [http.ResponseController].
func (w *errorWriter) FlushError() error {
	if w.failed != 0 {
		return nil
	}
	return http.NewResponseController(w.ResponseWriter).Flush()
}

// Unwrap lets [http.ResponseController] reach the writer of the server.
func (w *errorWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }

var (
	_ caddy.Provisioner           = (*Handler)(nil)
	_ caddyhttp.MiddlewareHandler = (*Handler)(nil)
)
