package middleware_test

import (
	"bytes"
	"io"
	"log/slog"
	"net/http"
	"testing"
	"time"

	chimw "github.com/go-chi/chi/v5/middleware"
	"github.com/stretchr/testify/require"

	"github.com/httplatch/httplatch/lock"
	"github.com/httplatch/httplatch/lock/memstore"
	latch "github.com/httplatch/httplatch/middleware"
)

// pastTheGuard lets h write to the writer that chi's loggers pass on, and not to the writer of the
// guard. Adapters of frameworks do that.
func pastTheGuard(guard func(http.Handler) http.Handler, h http.HandlerFunc) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		outer := chimw.NewWrapResponseWriter(w, r.ProtoMajor)
		guard(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { h(outer, r) })).ServeHTTP(outer, r)
	})
}

// TestAnswerPastTheGuard: an answer that a handler has written past its guard is not recorded as an
// empty 200.
func TestAnswerPastTheGuard(t *testing.T) {
	t.Parallel()
	tests := []struct{ status, again, runs int }{{201, 409, 1}, {422, 409, 1}, {500, 500, 2}, {429, 429, 2}}
	for _, tt := range tests {
		var out bytes.Buffer
		var e effects
		l := newLocker(t, memstore.New(), lock.WithLogger(slog.New(slog.NewJSONHandler(&out, nil))))
		h := pastTheGuard(once(l), e.then(func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(tt.status)
			_, _ = io.WriteString(w, "past")
		}))
		first := serve(h, keyed("k"))
		require.Equal(t, tt.status, first.Code)
		require.Equal(t, "past", first.Body.String())
		again := serve(h, keyed("k"))
		require.Equal(t, tt.again, again.Code)
		if tt.again == 409 {
			requireProblem(t, wantProblem{status: 409, kind: "result-not-replayable"}, again)
		}
		e.require(t, int64(tt.runs))
		requireLine(t, &out, "ERROR", "idempotent", "a framework outside of the guard has answered")
	}
}

// TestFailurePastALock starts no cool-down.
func TestFailurePastALock(t *testing.T) {
	t.Parallel()
	for status, again := range map[int]int{500: 500, 201: 429} {
		var out bytes.Buffer
		l := newLocker(t, memstore.New(), lock.WithLogger(slog.New(slog.NewJSONHandler(&out, nil))))
		h := pastTheGuard(latch.Lock(l, "user", byUser, latch.WithCooldown(time.Minute)),
			func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(status) })
		require.Equal(t, status, serve(h, keyed("")).Code)
		require.Equal(t, again, serve(h, keyed("")).Code)
		requireLine(t, &out, "ERROR", "user", "a framework outside of the guard has answered")
	}
}

// TestSilentHandler: an empty 200 is an answer, also if it is implied. It is logged once, since
// it may not have been meant.
func TestSilentHandler(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		handler http.HandlerFunc
		logged  bool
	}{
		"nothing":        {func(http.ResponseWriter, *http.Request) {}, true},
		"a status":       {func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(200) }, false},
		"a header":       {func(w http.ResponseWriter, _ *http.Request) { w.Header().Set("Location", "/orders/1") }, false},
		"an empty write": {func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write(nil) }, false},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var out bytes.Buffer
			var e effects
			l := newLocker(t, memstore.New(), lock.WithLogger(slog.New(slog.NewJSONHandler(&out, nil))))
			h := chimw.Logger(once(l)(e.then(tt.handler))) // whose writer sees that nothing was written
			requireReplay(t, serve(h, keyed("k")), serve(h, keyed("k")))
			serve(h, keyed("another"))
			e.require(t, 2)
			if !tt.logged {
				require.Empty(t, out.String())
				return
			}
			requireLine(t, &out, "WARN", "idempotent", "which is an empty 200")
		})
	}
}
