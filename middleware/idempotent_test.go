package middleware_test

import (
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/httplatch/httplatch/internal/testkit/must"
	"github.com/httplatch/httplatch/internal/testkit/parallel"
	"github.com/httplatch/httplatch/keyfunc"
	"github.com/httplatch/httplatch/lock"
	"github.com/httplatch/httplatch/lock/memstore"
	latch "github.com/httplatch/httplatch/middleware"
)

// once guards as most routes would.
func once(l *lock.Locker, opts ...latch.IdempotentOption) func(http.Handler) http.Handler {
	return latch.Idempotent(l, byUser, keyfunc.IdempotencyKey, opts...)
}

type effects struct{ n atomic.Int64 }

func (e *effects) then(f http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		e.n.Add(1)
		f(w, r)
	}
}

func (e *effects) answer(w http.ResponseWriter, _ *http.Request) {
	n := e.n.Add(1)
	w.Header().Set("Location", "/orders/"+itoa(n))
	w.WriteHeader(http.StatusCreated)
	_, _ = io.WriteString(w, "order "+itoa(n))
}

func (e *effects) require(t *testing.T, want int64) {
	t.Helper()
	require.Equal(t, want, e.n.Load(), "effects")
}

func itoa(n int64) string { return string(rune('0' + n)) }

// exchange is an answer as it came over a connection.
type exchange struct {
	status  int
	header  http.Header
	body    []byte
	length  int64
	coding  []string
	trailer http.Header
}

// exchanged sends r and returns its answer, or the zero exchange if there is none or it is incomplete.
func exchanged(t *testing.T, server *httptest.Server, r *http.Request) exchange {
	t.Helper()
	res, err := server.Client().Transport.RoundTrip(r) // which follows no redirects
	if err != nil {
		return exchange{}
	}
	body, err := io.ReadAll(res.Body)
	require.NoError(t, res.Body.Close())
	if err != nil {
		return exchange{}
	}
	res.Header.Del("Date")
	return exchange{res.StatusCode, res.Header, body, res.ContentLength, res.TransferEncoding, res.Trailer}
}

// over sends r, a request as a handler gets it, to server.
func over(t *testing.T, server *httptest.Server, r *http.Request) exchange {
	t.Helper()
	out := must.Get(http.NewRequestWithContext(t.Context(), r.Method, server.URL+r.URL.RequestURI(), r.Body))(t)
	out.Header = r.Header
	out.Header.Set("Accept-Encoding", "identity") // Go's client would unpack it
	return exchanged(t, server, out)
}

// TestReplayIsEqual compares answers as clients see them: of the bare handler, of the first request
// through the guard, and of its repeats. Other answers are rows of docs/evidence/semantics.md.
func TestReplayIsEqual(t *testing.T) {
	t.Parallel()
	packed := compressed(t, "gzip", strings.Repeat("squeeze", 1000))
	for name, handler := range map[string]http.HandlerFunc{
		"gzip, no type":                  acts(header("Content-Encoding", "gzip"), write(packed)),
		"304 with a length":              acts(header("Content-Length", "1234"), status(http.StatusNotModified)),
		"sniffed over 512":               acts(write("<!DOCTYPE html>" + strings.Repeat("\x00\x01", 4000))),
		"in pieces, first sniffed alone": acts(write("<"), write("!DOCTYPE html>")),
	} {
		parallel.Run(t, name, func(t *testing.T) {
			var e effects
			guarded := startServer(t, once(newLocker(t, memstore.New()))(e.then(handler)))
			want := over(t, startServer(t, handler), keyed("k"))
			require.Equal(t, want, over(t, guarded, keyed("k")), "the first answer is that of the handler")
			for range 3 {
				got := over(t, guarded, keyed("k"))
				require.Equal(t, []string{"true"}, got.header["Idempotent-Replayed"])
				delete(got.header, "Idempotent-Replayed")
				require.Equal(t, want, got)
			}
			e.require(t, 1)
		})
	}
}

// TestEarlyHintsPassAtOnce, and are not kept.
func TestEarlyHintsPassAtOnce(t *testing.T) {
	t.Parallel()
	var order []string
	w := &spyWriter{header: http.Header{"X-Outer": {"o"}}, on: func(status int, h http.Header) {
		order = append(order, http.StatusText(status)+" "+h.Get("Link")+h.Get("X-Outer"))
	}}
	once(newLocker(t, memstore.New()))(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Link", "</a>")
		w.WriteHeader(103)
		order = append(order, "still running")
		w.Header().Del("Link")
		w.WriteHeader(200)
		order = append(order, "returns")
	})).ServeHTTP(w, keyed("k"))
	require.Equal(t, []string{"Early Hints </a>o", "still running", "returns", "OK o"}, order)
}

type spyWriter struct {
	header http.Header
	on     func(status int, h http.Header)
}

func (s *spyWriter) Header() http.Header         { return s.header }
func (s *spyWriter) WriteHeader(status int)      { s.on(status, s.header) }
func (s *spyWriter) Write(p []byte) (int, error) { return len(p), nil }

// TestHeadersThatAreNotKept are for the first client, or its connection, alone.
func TestHeadersThatAreNotKept(t *testing.T) {
	t.Parallel()
	l := newLocker(t, memstore.New())
	private := []string{
		"Set-Cookie", "Set-Cookie2", "Authorization", "WWW-Authenticate", "Proxy-Authenticate", "Proxy-Authentication-Info",
		"Proxy-Connection", "Authentication-Info", "Date", "Keep-Alive", "TE", "Upgrade", "X-Hop", "X-Hop-Too", "Connection",
	}
	h := once(l)(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		for _, name := range private {
			w.Header().Set(name, "secret")
		}
		w.Header()["set-cookie"] = []string{"secret"} // spelled past Header.Set
		w.Header()["Connection"] = []string{"X-Hop, x-hop-too", "close"}
		w.Header().Set("X-Kept", "1")
		w.WriteHeader(http.StatusCreated)
	}))
	first := serve(h, keyed("k"))
	for _, name := range private {
		require.NotEmpty(t, first.Header()[http.CanonicalHeaderKey(name)], "the first client gets %s", name)
	}
	again := serve(h, keyed("k"))
	require.Equal(t, http.Header{"X-Kept": {"1"}, "Idempotent-Replayed": {"true"}}, again.Result().Header)
}

// A PUT that sets 1, 2 and 1 again within the window leaves 2, since the third is the first again. The pages say so.
func TestDedupeSwallowsAReturnToAnEarlierValue(t *testing.T) {
	t.Parallel()
	var value string
	h := latch.Dedupe(newLocker(t, memstore.New()), byUser, time.Minute)(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		value = string(must.Get(io.ReadAll(r.Body))(t))
	}))
	for _, set := range []string{"1", "2", "1"} {
		r := keyedBody("", set)
		r.Method = http.MethodPut
		require.Equal(t, http.StatusOK, serve(h, r).Code)
	}
	require.Equal(t, "2", value)
	for _, page := range []string{"../docs/forms.md", "idempotent.go"} {
		text := must.Get(os.ReadFile(page))(t)
		require.Contains(t, strings.ReplaceAll(string(text), "`", ""), "sets 1, then 2, then 1 again", page)
	}
}

const lifetimeHeader = "Idempotency-Key-Lifetime"

// TestLifetimeHeader: each answer of a remembered key says for how long, and no other answer does.
func TestLifetimeHeader(t *testing.T) {
	parallel.Bubble(t, func(t *testing.T) {
		var e effects
		next := func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set(lifetimeHeader, "of the handler") // a service behind a gateway may have its own guard
			w.WriteHeader(http.StatusCreated)
		}
		h := once(newLocker(t, memstore.New(), lock.WithKeep(time.Hour)), latch.WithLifetimeHeader())(e.then(func(w http.ResponseWriter, r *http.Request) {
			next(w, r)
		}))
		says := func(key string) string { return serve(h, keyed(key)).Header().Get(lifetimeHeader) }
		require.Equal(t, "3600", says("k"))
		time.Sleep(30*time.Minute + 100*time.Millisecond)
		require.Equal(t, "1799", says("k"), "the second that has begun does not count")
		time.Sleep(30*time.Minute - time.Second)
		require.Empty(t, says("k"), "less than one")
		require.Empty(t, serve(h, keyedBody("k", "other")).Header().Get(lifetimeHeader), "refused")
		time.Sleep(time.Second)
		require.Equal(t, "3600", says("k"), "a new request")
		e.require(t, 2)

		next = func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusInternalServerError) }
		require.Empty(t, says("not kept"))
		next = func(w http.ResponseWriter, _ *http.Request) { _ = http.NewResponseController(w).Flush() }
		require.Equal(t, "3600", says("stream"))
		require.Equal(t, "3600", says("stream"))
		open := once(newLocker(t, unreachable(), lock.WithLogger(quiet)), latch.WithLifetimeHeader(), latch.WithFailOpen())
		require.NotContains(t, serve(open(http.HandlerFunc(created)), keyed("k")).Header(), lifetimeHeader, "without the store")
		plain := once(newLocker(t, memstore.New()))(http.HandlerFunc(created))
		for range 2 {
			require.NotContains(t, serve(plain, keyed("k")).Header(), lifetimeHeader, "without the option")
		}
	})
}

// TestKeyFunctionsTakeTheGuardsLimit: a function that reads the body for a guard reads as much as the guard allows.
func TestKeyFunctionsTakeTheGuardsLimit(t *testing.T) {
	t.Parallel()
	body := func(contentType, begin, end string, size int, chunked bool) *http.Request {
		return typed(contentType, begin+strings.Repeat("x", size-len(begin)-len(end))+end, chunked)
	}
	for name, size := range map[string]struct{ size, limit, want int }{
		"12 MiB of 16":    {12 << 20, 16 << 20, 200}, // net/http alone parses 10
		"at the limit":    {4 << 20, 4 << 20, 200},
		"over the limit":  {4<<20 + 1, 4 << 20, 413},
		"over what it is": {1<<20 + 1, 0, 413},
	} {
		var opt latch.IdempotentOption = latch.With()
		if size.limit > 0 {
			opt = latch.WithBodyLimits(int64(size.limit), 1<<20)
		}
		json := func(chunked bool) *http.Request {
			return body("application/json", `{"id":"1","x":"`, `"}`, size.size, chunked)
		}
		multi := func(chunked bool) *http.Request {
			return body("multipart/form-data; boundary=b",
				"--b\r\nContent-Disposition: form-data; name=\"id\"\r\n\r\n1\r\n--b\r\nContent-Disposition: form-data; name=\"f\"; filename=\"f\"\r\n\r\n", "\r\n--b--\r\n", size.size, chunked)
		}
		for guardName, tt := range map[string]struct {
			guard   func(l *lock.Locker) guardFunc
			request func(chunked bool) *http.Request
		}{
			"key JSON":        {func(l *lock.Locker) guardFunc { return latch.Idempotent(l, byUser, keyfunc.JSON("/id"), opt) }, json},
			"key Form, multi": {func(l *lock.Locker) guardFunc { return latch.Idempotent(l, byUser, keyfunc.Form("id"), opt) }, multi},
			"scope JSON":      {func(l *lock.Locker) guardFunc { return latch.Dedupe(l, keyfunc.JSON("/id"), time.Hour, opt) }, json},
			"fingerprint":     {func(l *lock.Locker) guardFunc { return once(l, opt, latch.WithFingerprint(keyfunc.JSON("/id"))) }, json},
			"Lock inside": {func(l *lock.Locker) guardFunc {
				return nest(latch.Dedupe(l, byUser, time.Hour, opt), latch.Lock(l, "order", keyfunc.JSON("/id")))
			}, json},
		} {
			for _, chunked := range []bool{false, true} {
				h := tt.guard(newLocker(t, memstore.New()))(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
					require.EqualValues(t, size.size, must.Get(io.Copy(io.Discard, r.Body))(t))
				}))
				w := serve(h, tt.request(chunked))
				require.Equal(t, size.want, w.Code, "%s, %s, chunked: %v: %s", name, guardName, chunked, w.Body)
				if size.want == 413 {
					requireProblem(t, wantProblem{status: 413, kind: "body-too-large"}, w)
				}
			}
		}
	}
}

// A Lock has a fixed limit of 1 MiB, for any limit of another guard.
func TestLockAloneReadsAMebibyte(t *testing.T) {
	t.Parallel()
	h := latch.Lock(newLocker(t, memstore.New()), "order", keyfunc.JSON("/id"))(http.HandlerFunc(created))
	fits := `{"id":"1","x":"` + strings.Repeat("x", 1<<20-17) + `"}`
	require.Len(t, fits, 1<<20)
	require.Equal(t, 201, serve(h, typed("application/json", fits, false)).Code)
	require.Equal(t, 413, serve(h, typed("application/json", fits+" ", true)).Code)
}

// A request that no guard is wanted for has the body, and the limits, that it came with.
func TestSkippedRequestKeepsTheServersBody(t *testing.T) {
	t.Parallel()
	r := keyed("")
	was := r.Body
	h := latch.Idempotent(newLocker(t, memstore.New()), byUser, keyfunc.Optional(keyfunc.IdempotencyKey))(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		require.Equal(t, was, r.Body)
		w.WriteHeader(201)
	}))
	require.Equal(t, 201, serve(h, r).Code)
}

func submitAs(h http.Handler, user, key string) *httptest.ResponseRecorder {
	r := keyed(key)
	r.Header.Set("X-User-ID", user)
	return serve(h, r)
}

// One user's requests are refused before they are too many for all.
func TestOneUserDoesNotFillTheStoreForOthers(t *testing.T) {
	t.Parallel()
	const entries = 100
	for name, guard := range map[string]func(l *lock.Locker) guardFunc{
		"idempotent": func(l *lock.Locker) guardFunc { return once(l) },
		"dedupe": func(l *lock.Locker) guardFunc {
			return latch.Dedupe(l, byUser, time.Hour, latch.WithFingerprint(keyfunc.IdempotencyKey))
		},
	} {
		for _, tt := range []struct {
			share  float64
			served int // of user 42
			others int // status
		}{
			{0.25, entries / 4, http.StatusCreated},
			{1, entries, http.StatusServiceUnavailable}, // the case for which the share exists
		} {
			l := newLocker(t, memstore.New(memstore.WithLimits(entries, 1<<20), memstore.WithScopeShare(tt.share)), lock.WithLogger(quiet))
			h := guard(l)(http.HandlerFunc(created))
			served := make(map[int]int)
			for i := range 2 * entries {
				served[submitAs(h, "42", strconv.Itoa(i)).Code]++
			}
			require.Equal(t, map[int]int{http.StatusCreated: tt.served, http.StatusServiceUnavailable: 2*entries - tt.served}, served, name)
			require.Equal(t, http.StatusCreated, submitAs(h, "42", "0").Code, "a repeat is served whatever the share")
			require.Equal(t, tt.others, submitAs(h, "43", "0").Code, name)
		}
	}
}

// An answer that does not fit is delivered. Its repeats get a refusal that
// reports it, for as long as it would have been kept.
func TestAnswerThatDoesNotFitIsNotReplayable(t *testing.T) {
	parallel.Bubble(t, func(t *testing.T) {
		const keep = time.Hour
		l := newLocker(t, memstore.New(memstore.WithLimits(100, 1<<19)), lock.WithLogger(quiet), lock.WithKeep(keep))
		var did effects
		h := once(l)(did.then(func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write(make([]byte, 1<<20)) }))
		require.Equal(t, 1<<20, serve(h, keyed("k")).Body.Len())
		for range 5 {
			requireProblem(t, wantProblem{status: 409, kind: "result-not-replayable"}, serve(h, keyed("k")))
			time.Sleep(keep / 6)
		}
		did.require(t, 1)
		time.Sleep(keep - 5*(keep/6))
		require.Equal(t, 1<<20, serve(h, keyed("k")).Body.Len())
		did.require(t, 2)
	})
}
