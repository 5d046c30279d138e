package middleware_test

import (
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/httplatch/httplatch/keyfunc"
	"github.com/httplatch/httplatch/lock"
	"github.com/httplatch/httplatch/lock/memstore"
	latch "github.com/httplatch/httplatch/middleware"
)

type guardFunc = func(http.Handler) http.Handler

// TestKeyFunctionsTakeTheGuardsLimit: a function that reads the body for a
// guard reads as much as the guard allows.
func TestKeyFunctionsTakeTheGuardsLimit(t *testing.T) {
	t.Parallel()
	body := func(contentType, begin, end string, size int, chunked bool) *http.Request {
		return typed(contentType, begin+strings.Repeat("x", size-len(begin)-len(end))+end, chunked)
	}
	sizes := map[string]struct{ size, limit, want int }{
		"3 MiB of 4":      {3 << 20, 4 << 20, 200},
		"12 MiB of 16":    {12 << 20, 16 << 20, 200}, // net/http alone parses 10
		"at the limit":    {4 << 20, 4 << 20, 200},
		"over the limit":  {4<<20 + 1, 4 << 20, 413},
		"small limit":     {2000, 1000, 413},
		"in small limit":  {1000, 1000, 200},
		"unset":           {1 << 20, 0, 200},
		"over what it is": {1<<20 + 1, 0, 413},
	}
	for name, size := range sizes {
		opts := func(more ...latch.IdempotentOption) []latch.IdempotentOption {
			if size.limit > 0 {
				more = append(more, latch.WithBodyLimits(int64(size.limit), 1<<20))
			}
			return more
		}
		json := func(chunked bool) *http.Request {
			return body("application/json", `{"id":"1","x":"`, `"}`, size.size, chunked)
		}
		form := func(chunked bool) *http.Request { return body(urlencoded, "id=1&x=", "", size.size, chunked) }
		multi := func(chunked bool) *http.Request {
			return body("multipart/form-data; boundary=b",
				"--b\r\nContent-Disposition: form-data; name=\"id\"\r\n\r\n1\r\n--b\r\nContent-Disposition: form-data; name=\"f\"; filename=\"f\"\r\n\r\n", "\r\n--b--\r\n", size.size, chunked)
		}
		for guardName, tt := range map[string]struct {
			guard   func(l *lock.Locker) guardFunc
			request func(chunked bool) *http.Request
		}{
			"key JSON":        {func(l *lock.Locker) guardFunc { return latch.Idempotent(l, byUser, keyfunc.JSON("/id"), opts()...) }, json},
			"key Form":        {func(l *lock.Locker) guardFunc { return latch.Idempotent(l, byUser, keyfunc.Form("id"), opts()...) }, form},
			"key Form, multi": {func(l *lock.Locker) guardFunc { return latch.Idempotent(l, byUser, keyfunc.Form("id"), opts()...) }, multi},
			"scope JSON":      {func(l *lock.Locker) guardFunc { return latch.Dedupe(l, keyfunc.JSON("/id"), time.Hour, opts()...) }, json},
			"fingerprint":     {func(l *lock.Locker) guardFunc { return once(l, opts(latch.WithFingerprint(keyfunc.JSON("/id")))...) }, json},
			"Lock inside": {func(l *lock.Locker) guardFunc {
				return func(h http.Handler) http.Handler {
					return latch.Dedupe(l, byUser, time.Hour, opts()...)(latch.Lock(l, "order", keyfunc.JSON("/id"))(h))
				}
			}, json},
		} {
			for _, chunked := range []bool{false, true} {
				t.Run(strings.Join([]string{name, guardName, map[bool]string{true: "chunked"}[chunked]}, " "), func(t *testing.T) {
					t.Parallel()
					h := tt.guard(newLocker(t, memstore.New()))(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
						n, err := io.Copy(io.Discard, r.Body)
						require.NoError(t, err)
						require.EqualValues(t, size.size, n)
					}))
					w := serve(h, tt.request(chunked))
					require.Equal(t, size.want, w.Code, w.Body)
					if size.want == 413 {
						requireProblem(t, wantProblem{status: 413, kind: "body-too-large"}, w)
					}
				})
			}
		}
	}
}

// A Lock has a fixed limit of 1 MiB, for any limit of another guard.
func TestLockAloneReadsAMebibyte(t *testing.T) {
	t.Parallel()
	l := newLocker(t, memstore.New())
	h := latch.Lock(l, "order", keyfunc.JSON("/id"))(http.HandlerFunc(created))
	fits := `{"id":"1","x":"` + strings.Repeat("x", 1<<20-17) + `"}`
	require.Len(t, fits, 1<<20)
	require.Equal(t, 201, serve(h, typed("application/json", fits, false)).Code)
	require.Equal(t, 413, serve(h, typed("application/json", fits+" ", true)).Code)
}

// TestSkippedRequestKeepsTheServersBody: a request that no guard is wanted for
// has the body, and the limits, that it came with.
func TestSkippedRequestKeepsTheServersBody(t *testing.T) {
	t.Parallel()
	l := newLocker(t, memstore.New())
	r := keyed("")
	was := r.Body
	h := latch.Idempotent(l, byUser, keyfunc.Optional(keyfunc.IdempotencyKey))(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		require.Equal(t, was, r.Body)
		w.WriteHeader(201)
	}))
	require.Equal(t, 201, serve(h, r).Code)
}
