package middleware_test

import (
	"io"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/httplatch/httplatch/lock/memstore"
	latch "github.com/httplatch/httplatch/middleware"
)

func TestCooldown(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name    string
		handler http.HandlerFunc
		cools   bool
	}{
		{"only a body", func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "ok") }, true},
		{"399", func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(399) }, true},
		{"400", func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(400) }, false},
		{"103, then a body", func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(103); _, _ = w.Write(nil) }, true},
		{"201, then a superfluous 500", func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(201); w.WriteHeader(500) }, true},
		{"500, then a superfluous 201", func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(500); w.WriteHeader(201) }, false},
		{"copied body, then a superfluous 500", func(w http.ResponseWriter, _ *http.Request) {
			_, _ = io.Copy(w, strings.NewReader("ok"))
			w.WriteHeader(500)
		}, true},
		{"flushed, then a superfluous 500", func(w http.ResponseWriter, _ *http.Request) {
			_ = http.NewResponseController(w).Flush()
			w.WriteHeader(500)
		}, true},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				l := newLocker(t, memstore.New())
				guard := latch.Lock(l, "user", byUser, latch.WithCooldown(3*time.Second))
				serve(guard(tt.handler), post("42"))
				next := guard(http.HandlerFunc(created))
				if !tt.cools {
					require.Equal(t, http.StatusCreated, serve(next, post("42")).Code, "the key is free at once")
					return
				}
				time.Sleep(500 * time.Millisecond)
				requireProblem(t, wantProblem{status: 429, kind: "cooling-down", retryAfter: "3"}, serve(next, post("42")))
				require.Equal(t, http.StatusCreated, serve(next, post("43")).Code, "another key is not concerned")
				time.Sleep(2501 * time.Millisecond)
				require.Equal(t, http.StatusCreated, serve(next, post("42")).Code)
			})
		})
	}
}

// TestCooldownSurvivesRequest: a client that left still has its cool-down.
func TestCooldownSurvivesRequest(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		l := newLocker(t, &stubStore{Store: memstore.New()})
		guard := latch.Lock(l, "user", byUser, latch.WithCooldown(3*time.Second))
		ctx, cancel := newCancel(t)
		serve(guard(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			cancel()
			w.WriteHeader(http.StatusCreated)
		})), post("42").WithContext(ctx))
		require.Equal(t, http.StatusTooManyRequests, serve(guard(mustNotRun(t)), post("42")).Code)
	})
}
