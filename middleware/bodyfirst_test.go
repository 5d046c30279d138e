package middleware_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/stretchr/testify/require"

	"github.com/httplatch/httplatch/internal/bodybuf"
	"github.com/httplatch/httplatch/lock"
	"github.com/httplatch/httplatch/lock/memstore"
	latch "github.com/httplatch/httplatch/middleware"
)

func TestBodyFirstRefusals(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name  string
		body  io.Reader
		known bool
		user  string
		want  wantProblem
	}{
		{"at the limit", strings.NewReader("tea"), true, "42", wantProblem{status: 201}},
		{"none", nil, true, "42", wantProblem{status: 201}},
		{"above it", strings.NewReader("teas"), true, "42", wantProblem{status: 413, kind: "body-too-large"}},
		{"above it, length unknown", strings.NewReader("teas"), false, "42", wantProblem{status: 413, kind: "body-too-large"}},
		{"broken off", io.MultiReader(strings.NewReader("t"), iotest.ErrReader(io.ErrUnexpectedEOF)), false, "42", wantProblem{status: 400, kind: "body-unreadable"}},
		{"no key", iotest.ErrReader(io.ErrUnexpectedEOF), false, "", wantProblem{status: 400, kind: "key-missing"}},
	}
	for _, tt := range tests {
		var kinds []string
		l := newLocker(t, memstore.New(), lock.WithObserver(func(_ context.Context, e lock.Event) {
			kinds = append(kinds, string(e.Kind))
		}))
		r := httptest.NewRequest(http.MethodPost, "/orders", tt.body)
		if !tt.known {
			r.ContentLength = -1
		}
		r.Header.Set("X-User-ID", tt.user)
		w := serve(latch.Lock(l, "user", byUser, latch.WithBodyFirst(3))(http.HandlerFunc(created)), r)
		if tt.want.status == 201 {
			require.Equal(t, 201, w.Code, tt.name)
			continue
		}
		requireProblem(t, tt.want, w)
		require.Equal(t, []string{string(lock.EventRejected)}, kinds, "%s: nothing was claimed", tt.name)
	}
}

// TestBodyFirstOfABodyReadOutside: it is no slow body, and the key does not need it.
func TestBodyFirstOfABodyReadOutside(t *testing.T) {
	t.Parallel()
	for name, read := range map[string]func(*http.Request) error{"read": consume, "read and closed": consumeAndClose} {
		h := outside(t, read, latch.Lock(newLocker(t, memstore.New()), "user", byUser, latch.WithBodyFirst(100)), created)
		require.Equal(t, 201, serve(h, keyed("")).Code, name)
	}
}

// TestBodyFirstLimitsKeyFunctions that read the body before the guard does.
func TestBodyFirstLimitsKeyFunctions(t *testing.T) {
	t.Parallel()
	key := func(r *http.Request) (string, error) {
		body, err := bodybuf.Bytes(r, 1<<20)
		return fmt.Sprint(len(body), err), nil
	}
	l := newLocker(t, memstore.New())
	h := latch.Lock(l, "size", key, latch.WithBodyFirst(3))(mustNotRun(t))
	requireProblem(t, wantProblem{status: 413, kind: "body-too-large"}, serve(h, httptest.NewRequest(http.MethodPost, "/", strings.NewReader("teas"))))
}
