package middleware_test

import (
	"bytes"
	"context"
	"log/slog"
	"net/http"
	"reflect"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/httplatch/httplatch/lock"
	"github.com/httplatch/httplatch/lock/memstore"
	latch "github.com/httplatch/httplatch/middleware"
)

type traceKey struct{}

// inTheMiddle is other middleware, which hides the handler inside it.
func inTheMiddle(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { next.ServeHTTP(w, r) })
}

// answering sets a header, so that there is an answer.
func answering(next http.Handler) http.Handler {
	if reflect.TypeOf(next) == reflect.TypeOf(http.TimeoutHandler(nil, 0, "")) {
		return next // the guard has to recognise this type
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("X-Answered", "1")
		next.ServeHTTP(w, r)
	})
}

// A handler behind a TimeoutHandler, or a goroutine of a handler, may still work after the guard
// has freed the key.
func TestHandlerOutlivesItsGuard(t *testing.T) {
	timeout := func(h http.Handler) http.Handler { return http.TimeoutHandler(h, time.Second, "") }
	plain := func(h http.Handler) http.Handler { return h }
	// work goes on for as long as its handler, or it and a goroutine.
	slow := func(use func(ctx context.Context)) http.HandlerFunc {
		return func(_ http.ResponseWriter, r *http.Request) {
			time.Sleep(2 * time.Second)
			use(r.Context())
		}
	}
	behind := func(use func(ctx context.Context)) http.HandlerFunc {
		return func(_ http.ResponseWriter, r *http.Request) { go slow(use)(nil, r) }
	}
	after := func() {}
	none := func(context.Context) {}
	value := func(ctx context.Context) { ctx.Value(traceKey{}) }
	lease := func(ctx context.Context) { lock.FromContext(ctx) }
	tests := []struct {
		name    string
		inside  func(h http.Handler) http.Handler
		outside func(h http.Handler) http.Handler
		handler http.HandlerFunc
		once    bool // said of Idempotent as well
		lock    bool
	}{
		{"TimeoutHandler, context unused", timeout, plain, slow(none), true, true},
		{"hidden TimeoutHandler, a value", func(h http.Handler) http.Handler { return inTheMiddle(timeout(h)) }, plain, slow(value), true, true},
		{"hidden TimeoutHandler, the lease", func(h http.Handler) http.Handler { return inTheMiddle(timeout(h)) }, plain, slow(lease), true, true},
		{"TimeoutHandler outside", plain, timeout, slow(value), false, false},
		{"slow handler", plain, plain, slow(lease), false, false},
		{"goroutine, its context", plain, plain, behind(value), false, false},
		{"goroutine, WithoutCancel", plain, plain, behind(func(ctx context.Context) { value(context.WithoutCancel(ctx)) }), false, false},
		{"goroutine, the lease", plain, plain, behind(func(ctx context.Context) { lease(context.WithoutCancel(ctx)) }), false, true},
		{"clean-up of a derived context", plain, plain, func(_ http.ResponseWriter, r *http.Request) {
			_, cancel := context.WithCancel(r.Context())
			go func() { time.Sleep(time.Second); cancel() }()
		}, false, false},
		{"why it ended, asked by middleware outside", plain, func(h http.Handler) http.Handler {
			return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				h.ServeHTTP(w, r)
				after()
			})
		}, func(_ http.ResponseWriter, r *http.Request) { after = func() { _ = context.Cause(r.Context()) } }, false, false},
	}
	for _, tt := range tests {
		for guard, logged := range map[string]bool{"user": tt.lock, "idempotent": tt.once} {
			t.Run(guard+", "+tt.name, func(t *testing.T) {
				var out bytes.Buffer
				logger := lock.WithLogger(slog.New(slog.NewJSONHandler(&out, nil)))
				synctest.Test(t, func(t *testing.T) {
					l := newLocker(t, memstore.New(), logger)
					guards := map[string]func(http.Handler) http.Handler{"user": latch.Lock(l, "user", byUser), "idempotent": once(l)}
					h := tt.outside(guards[guard](answering(tt.inside(tt.handler))))
					for range 3 {
						serve(h, keyed("k"))
						time.Sleep(5 * time.Second)
					}
				})
				if !logged {
					require.Empty(t, out.String())
					return
				}
				requireLine(t, &out, "ERROR", guard, "mount http.TimeoutHandler")
			})
		}
	}
}

// Adapters of routers (echo.WrapMiddleware is one) replace their own request by the request of
// the handler that they wrap, and leave it there. So access logs outside look for values in a
// context that has ended. The next request does too, if a program keeps a context for it.
func TestRequestLeftToOuterMiddleware(t *testing.T) {
	out := &bytes.Buffer{} // a server has answered before it is read
	logger := lock.WithLogger(slog.New(slog.NewJSONHandler(out, nil)))
	for _, http2 := range []bool{false, true} {
		l := newLocker(t, memstore.New(), logger)
		for name, guard := range map[string]func(http.Handler) http.Handler{"Lock": latch.Lock(l, "user", byUser), "Idempotent": once(l)} {
			var left atomic.Pointer[http.Request]
			guarded := guard(answering(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { left.Store(r) })))
			server := startServerOf(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if kept := left.Load(); kept != nil {
					kept.Context().Value(traceKey{})
				}
				guarded.ServeHTTP(w, r)
				left.Load().Context().Value(traceKey{})
			}), http2)
			for _, key := range []string{"a", "b"} {
				require.Equal(t, 200, over(t.Context(), t, server, keyed(name+key)).status)
			}
		}
	}
	require.Empty(t, out.String())
}
