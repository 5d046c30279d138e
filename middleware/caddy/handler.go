package latchcaddy

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp"
)

// Handler guards the handlers behind it.
type Handler struct {
	// The guards, the outermost first: objects with the fields of package policy, and the name of
	// the guard in "guard". {"kind": "refuse"} refuses requests with an Idempotency-Key.
	Guards []json.RawMessage `json:"guards,omitempty"`

	parsed []guard
	chain  http.Handler // all guards, and deliver behind them
}

// CaddyModule is part of [caddy.Module].
func (Handler) CaddyModule() caddy.ModuleInfo {
	return caddy.ModuleInfo{ID: "http.handlers.latch", New: func() caddy.Module { return new(Handler) }}
}

// Provision makes the guards.
func (h *Handler) Provision(ctx caddy.Context) error {
	configured, err := ctx.App("latch")
	if err != nil {
		return err
	}
	app, ok := configured.(*App)
	if !ok {
		return fmt.Errorf("latch: the app is a %T", configured)
	}
	if len(h.Guards) == 0 {
		return errNoGuard
	}
	h.chain = http.HandlerFunc(deliver)
	var errs []error
	for _, raw := range slices.Backward(h.Guards) {
		g, err := guardOf(raw)
		if err == nil {
			var wrap func(http.Handler) http.Handler
			if wrap, err = g.build(app.shared.locker); err == nil {
				h.parsed, h.chain = append(h.parsed, g), wrap(h.chain)
			}
		}
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

var errNoGuard = errors.New("latch: there is no guard: add idempotent, dedupe, lock or refuse")

// guards reports whether the handlers behind h run under a guard.
func (h *Handler) guards() bool {
	return slices.ContainsFunc(h.parsed, func(g guard) bool { return g.kind != kindRefuse })
}

// exchange is one guarded request.
type exchange struct {
	next caddyhttp.Handler
	err  error        // of next
	sent []*Transport // through which the request may have left
}

// exchangeKey is the key of the innermost exchange in a context.
type exchangeKey struct{}

func exchangeOf(ctx context.Context) *exchange {
	x, _ := ctx.Value(exchangeKey{}).(*exchange)
	return x
}

// ServeHTTP is part of [caddyhttp.MiddlewareHandler].
func (h *Handler) ServeHTTP(w http.ResponseWriter, r *http.Request, next caddyhttp.Handler) error {
	if safe(r.Method) {
		return next.ServeHTTP(w, r)
	}
	x := &exchange{next: next}
	out := &errorWriter{ResponseWriter: w}
	h.chain.ServeHTTP(out, r.WithContext(context.WithValue(r.Context(), exchangeKey{}, x)))
	switch {
	case out.failed == 0:
		return nil
	case x.err != nil:
		return x.err
	default:
		return caddyhttp.Error(out.failed, errReplayed)
	}
}

var errReplayed = errors.New("latch: the first request with this key has failed with this status")

// safe reports whether requests with this method have no effect, so that no guard looks at them.
func safe(method string) bool {
	switch method {
	case http.MethodGet, http.MethodHead, http.MethodOptions, http.MethodTrace:
		return true
	}
	return false
}

// deliver runs the handlers behind the guards. For the guards, an error of these handlers is an
// answer, which they keep or do not keep like other answers.
func deliver(w http.ResponseWriter, r *http.Request) {
	x := exchangeOf(r.Context())
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
