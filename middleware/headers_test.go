package middleware_test

import (
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/httplatch/httplatch/lock/memstore"
	latch "github.com/httplatch/httplatch/middleware"
)

// hookWriter changes the headers when they are sent, as middleware that
// compresses does.
type hookWriter struct {
	http.ResponseWriter
	hook func(h http.Header)
	sent bool
}

func (w *hookWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }

func (w *hookWriter) WriteHeader(status int) {
	if !w.sent {
		w.sent = true
		w.hook(w.Header())
	}
	w.ResponseWriter.WriteHeader(status)
}

// outerMiddleware changes the headers of its own request, outside of a guard.
var outerMiddleware = map[string]func(next http.Handler) http.Handler{
	"nothing": func(next http.Handler) http.Handler { return next },
	"adds before": func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			w.Header().Add("Vary", "Origin")
			next.ServeHTTP(w, r)
		})
	},
	"adds two before": func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			w.Header().Add("Vary", "Origin")
			w.Header().Add("Vary", "Cookie")
			next.ServeHTTP(w, r)
		})
	},
	"adds when it is sent": func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			next.ServeHTTP(&hookWriter{ResponseWriter: w, hook: func(h http.Header) { h.Add("Vary", "Origin") }}, r)
		})
	},
	"adds before and when it is sent": func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			w.Header().Add("Vary", "Cookie")
			next.ServeHTTP(&hookWriter{ResponseWriter: w, hook: func(h http.Header) { h.Add("Vary", "Origin") }}, r)
		})
	},
}

// innerHandlers change the same header.
var innerHandlers = map[string]func(h http.Header){
	"adds":            func(h http.Header) { h.Add("Vary", "Accept") },
	"adds two":        func(h http.Header) { h.Add("Vary", "Accept"); h.Add("Vary", "Accept-Language") },
	"adds the same":   func(h http.Header) { h.Add("Vary", "Origin") },
	"adds in front":   func(h http.Header) { h["Vary"] = append([]string{"Accept"}, h["Vary"]...) },
	"appends to text": func(h http.Header) { h.Set("Vary", strings.Join(append(h.Values("Vary"), "Accept"), ", ")) },
	"appends to text and adds": func(h http.Header) {
		h.Set("Vary", strings.Join(append(h.Values("Vary"), "Accept"), ", "))
		h.Add("Vary", "Accept-Language")
	},
	"adds none": func(http.Header) {},
}

// vary returns the header as a client sees it: a list in no order.
func vary(h http.Header) []string {
	list := strings.Split(strings.Join(h.Values("Vary"), ","), ",")
	for i := range list {
		list[i] = strings.TrimSpace(list[i])
	}
	slices.Sort(list)
	return list
}

// TestListHeadersOfOuterMiddlewareSurviveReplays: a replay has the headers that
// the bare handler would have sent behind the middleware of the repeat.
func TestListHeadersOfOuterMiddlewareSurviveReplays(t *testing.T) {
	t.Parallel()
	for inner, set := range innerHandlers {
		handler := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			set(w.Header())
			w.WriteHeader(http.StatusCreated)
		})
		for first, outerFirst := range outerMiddleware {
			for repeat, outerRepeat := range outerMiddleware {
				t.Run("handler "+inner+", first "+first+", repeat "+repeat, func(t *testing.T) {
					t.Parallel()
					guarded := once(newLocker(t, memstore.New()))(handler)
					require.Equal(t, vary(serve(outerFirst(handler), keyed("k")).Header()), vary(serve(outerFirst(guarded), keyed("k")).Header()))
					again := serve(outerRepeat(guarded), keyed("k")).Header()
					require.Equal(t, "true", again.Get("Idempotent-Replayed"))
					require.Equal(t, vary(serve(outerRepeat(handler), keyed("k")).Header()), vary(again))
				})
			}
		}
	}
}

// TestHandlerReplacesHeaders is the twin: a header of outer middleware that the
// handler has removed does not come back, and a header of one value keeps one
// value.
func TestHandlerReplacesHeaders(t *testing.T) {
	t.Parallel()
	guarded := once(newLocker(t, memstore.New()))(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Vary", "Accept")
		w.Header().Set("Cache-Control", "no-store")
		w.Header().Set("Content-Type", "text/x-own")
	}))
	outer := func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Vary", "Origin")
		w.Header().Set("Cache-Control", "public")
		w.Header().Set("Content-Type", "text/html")
		guarded.ServeHTTP(w, r)
	}
	requireReplay(t, serve(http.HandlerFunc(outer), keyed("k")), serve(http.HandlerFunc(outer), keyed("k")))
	guarded = once(newLocker(t, memstore.New()))(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/x-own")
	}))
	require.Equal(t, []string{"text/x-own"}, serve(guarded, keyed("k")).Header()["Content-Type"])
	require.Equal(t, []string{"text/x-own"}, serve(http.HandlerFunc(outer), keyed("k")).Header()["Content-Type"])
}

// hostileHeaders are names and values that net/http does not send as they are.
var hostileHeaders = map[string]http.Header{
	"the mark of the record": {":Location": {"/evil"}},
	"a pseudo header":        {":status": {"200"}, ":": {"x"}},
	"no name":                {"": {"x"}},
	"no token":               {"X Y": {"x"}, "X\r\nEvil": {"x"}, "Ünicode": {"x"}, "X:": {"x"}, "X\x00": {"x"}, "X@": {"x"}},
	"lower case":             {"x-lower": {"x"}},
	"both cases":             {"X-Both": {"1"}, "x-both": {"2"}},
	"a line break":           {"X-A": {"a\r\nEvil: 1", "fine"}, "Location": {"/x\nSet-Cookie: a=b"}},
	"only a line break":      {"X-A": {"\r\n"}},
	"spaces around":          {"X-A": {"  a  ", "\tb\t"}},
	"empty values":           {"X-A": {""}, "X-B": {}, "X-C": nil},
	"other characters":       {"X-A": {"ö", "\xff", "日本"}},
	"a tab":                  {"X-A": {"a\tb"}},
	"a broken type":          {"Content-Type": {"text/plain\r\nEvil: 1"}},
	"no type":                {"Content-Type": nil},
	"no date":                {"Date": nil},
	"a broken length":        {"Content-Length": {"seven"}},
	"a negative length":      {"Content-Length": {"-1"}},
	"cookies":                {"Set-Cookie": {"a=b"}, "set-cookie": {"c=d"}, "Set-Cookie:": {"e=f"}},
	"marked itself":          {"Idempotent-Replayed": {"false"}},
}

// TestReplayHasTheHeadersThatWentOut sends them through real servers, and the
// repeat over the other protocol too.
func TestReplayHasTheHeadersThatWentOut(t *testing.T) {
	t.Parallel()
	for name, hostile := range hostileHeaders {
		for _, firstHTTP2 := range []bool{false, true} {
			for _, againHTTP2 := range []bool{false, true} {
				t.Run(name+map[bool]string{true: " h2", false: " h1"}[firstHTTP2]+map[bool]string{true: " h2", false: " h1"}[againHTTP2], func(t *testing.T) {
					t.Parallel()
					requireSameHeaders(t, hostile, firstHTTP2, againHTTP2)
				})
			}
		}
	}
}

func requireSameHeaders(t *testing.T, hostile http.Header, firstHTTP2, againHTTP2 bool) {
	t.Helper()
	var e effects
	guarded := once(newLocker(t, memstore.New(), patient))(e.then(func(w http.ResponseWriter, _ *http.Request) {
		maps.Copy(w.Header(), hostile)
		w.WriteHeader(http.StatusCreated)
		_, _ = io.WriteString(w, "ordered")
	}))
	first := over(t.Context(), t, startServerOf(t, guarded, firstHTTP2), keyed("k"))
	again := over(t.Context(), t, startServerOf(t, guarded, againHTTP2), keyed("k"))
	require.Equal(t, "true", again.header.Get("Idempotent-Replayed"))
	for _, h := range []http.Header{first.header, again.header} {
		h.Del("Idempotent-Replayed")
		h.Del("Set-Cookie")
		h.Del("Content-Length") // a broken one is repaired, or the answer has none
		for _, values := range h {
			for i := range values {
				values[i] = strings.TrimSpace(values[i]) // a server leaves them around a value in HTTP/2
			}
		}
	}
	require.Equal(t, first.header, again.header)
	require.Equal(t, first.status, again.status)
	require.Equal(t, first.body, again.body)
	e.require(t, 1)
}

// FuzzReplayHeaders: for any name and values of a header, the repeat has the
// header that the first client got.
func FuzzReplayHeaders(f *testing.F) {
	for name, h := range map[string]string{"X-A": "a\r\nb", ":Location": "/", "x y": "z", "Vary": " a ", "Location": "\x7f"} {
		f.Add(name, h, false)
		f.Add(name, h, true)
	}
	f.Fuzz(func(t *testing.T, name, value string, http2 bool) {
		switch http.CanonicalHeaderKey(name) {
		case "Content-Length", "Connection", "Trailer", "Transfer-Encoding", "Date", "Upgrade", "Keep-Alive", "Te", "Idempotent-Replayed",
			"Authorization", "Www-Authenticate", "Authentication-Info", "Set-Cookie", "Set-Cookie2", "Content-Encoding":
			return // headers that are not replayed, or describe the connection
		}
		if strings.HasPrefix(name, http.TrailerPrefix) || strings.HasPrefix(http.CanonicalHeaderKey(name), "Proxy-") {
			return
		}
		guarded := once(newLocker(t, memstore.New(), patient))(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.Header()[name] = []string{value, "second"}
			_, _ = io.WriteString(w, "ordered")
		}))
		server := startServerOf(t, guarded, http2)
		first, err := server.Client().Do(clientRequest(t, server.URL, "k"))
		if err != nil {
			return // the client takes no answer with such a header
		}
		require.NoError(t, first.Body.Close())
		again, err := server.Client().Do(clientRequest(t, server.URL, "k"))
		require.NoError(t, err)
		require.NoError(t, again.Body.Close())
		require.Equal(t, "true", again.Header.Get("Idempotent-Replayed"))
		again.Header.Del("Idempotent-Replayed")
		for _, h := range []http.Header{first.Header, again.Header} {
			h.Del("Date")
		}
		require.Equal(t, first.Header, again.Header)
	})
}

// headerValues are the values of a header that middleware outside of a guard sets, one
// for the first request and one for its repeat.
type headerValues struct {
	name         string
	first, again string
}

// describing are headers that describe the body of an answer, or restrict its use.
var describing = []headerValues{
	{"Content-Type", "application/json", "text/html; charset=utf-8"},
	{"Content-Language", "de", "en"},
	{"Content-Security-Policy", "script-src 'nonce-1'", "script-src 'nonce-2'"},
	{"Content-Disposition", "attachment", "inline"},
	{"content-location", "/orders/1.de", "/orders/1.en"},
	{"ETag", `"1"`, `"2"`},
	{"Last-Modified", "Tue, 24 Nov 2026 12:00:00 GMT", "Tue, 24 Nov 2026 12:00:01 GMT"},
}

// behind returns h behind middleware that sets v by the number of the request.
func (v headerValues) behind(h http.Handler) http.Handler {
	requests := 0
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		requests++
		w.Header()[v.name] = []string{v.first}
		if requests > 1 {
			w.Header()[v.name] = []string{v.again}
		}
		h.ServeHTTP(w, r)
	})
}

// A body is replayed under the headers that it was first sent with, even where
// middleware outside of the guard has set them, and the handler the same, or nothing.
func TestAReplayIsDescribedAsTheFirstAnswer(t *testing.T) {
	t.Parallel()
	const script = `{"name":"<script>alert(1)</script>"}`
	for _, v := range describing {
		for handler, set := range map[string]func(http.Header){
			"sets nothing":       func(http.Header) {},
			"sets the same":      func(h http.Header) { h[v.name] = []string{v.first} },
			"adds to it":         func(h http.Header) { h[v.name] = append(h[v.name], v.first+"-x") },
			"sets its own value": func(h http.Header) { h[v.name] = []string{v.first + "-own"} },
		} {
			t.Run(v.name+", the handler "+handler, func(t *testing.T) {
				t.Parallel()
				h := v.behind(once(newLocker(t, memstore.New()))(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
					set(w.Header())
					w.WriteHeader(http.StatusCreated)
					_, _ = io.WriteString(w, script)
				})))
				requireReplay(t, serve(h, keyed("k")), serve(h, keyed("k")))
			})
		}
	}
}

// The twin: other headers of outer middleware belong to its own request, unless
// WithKeepHeaders names them.
func TestOtherHeadersOfOuterMiddlewareAreOfTheRepeat(t *testing.T) {
	t.Parallel()
	answer := http.HandlerFunc(created)
	coding := headerValues{"Content-Encoding", "gzip", "identity"}.behind(once(newLocker(t, memstore.New()))(answer))
	require.Equal(t, "gzip", serve(coding, keyed("k")).Header().Get("Content-Encoding"))
	require.Equal(t, "identity", serve(coding, keyed("k")).Header().Get("Content-Encoding"), "of the middleware that compresses")

	id := headerValues{"X-Request-Id", "1", "2"}
	h := id.behind(once(newLocker(t, memstore.New()))(answer))
	require.Equal(t, "1", serve(h, keyed("k")).Header().Get("X-Request-Id"))
	require.Equal(t, "2", serve(h, keyed("k")).Header().Get("X-Request-Id"))

	for _, names := range [][]string{{"X-Request-Id"}, {"x-request-ID", "X-Other"}} {
		h = id.behind(once(newLocker(t, memstore.New()), latch.WithKeepHeaders(names[0]), latch.WithKeepHeaders(names...))(answer))
		requireReplay(t, serve(h, keyed("k")), serve(h, keyed("k")))
	}
}

func TestKeepHeadersRefusesWhatIsNeverKept(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"Set-Cookie", "set-cookie", "Authorization", "Connection", "Content-Length", "Date", "Proxy-X", "", "not a token", "Idempotent-Replayed"} {
		require.PanicsWithValue(t, fmt.Sprintf("middleware.WithKeepHeaders(%q): no answer is kept with this header", name),
			func() { latch.WithKeepHeaders("X-Kept", name) })
	}
	require.PanicsWithValue(t, "middleware.WithKeepHeaders: no name", func() { latch.WithKeepHeaders() })
}

// A handler that changes a value in place, after it has begun its answer, changes
// neither the answer nor its record, as in net/http.
func TestValuesThatAreChangedInPlaceAreNotSent(t *testing.T) {
	t.Parallel()
	runs := 0
	handler := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		runs++
		w.Header()["X-Order"] = []string{"first", strconv.Itoa(runs)}
		w.WriteHeader(http.StatusCreated)
		w.Header()["X-Order"][0] = "changed"
	})
	server := httptest.NewServer(once(newLocker(t, memstore.New()))(handler))
	defer server.Close()
	for _, replayed := range []string{"", "true"} {
		r := keyed("k")
		request, err := http.NewRequestWithContext(t.Context(), r.Method, server.URL+r.URL.Path, r.Body)
		require.NoError(t, err)
		request.Header = r.Header
		resp, err := server.Client().Do(request)
		require.NoError(t, err)
		require.NoError(t, resp.Body.Close())
		require.Equal(t, replayed, resp.Header.Get("Idempotent-Replayed"))
		require.Equal(t, []string{"first", "1"}, resp.Header.Values("X-Order"))
	}
}

// The headers that outer middleware reads after the guard has returned do not change, although the
// guard uses its memory for other answers.
func TestHeadersOutliveTheGuardsMemory(t *testing.T) {
	t.Parallel()
	h := once(newLocker(t, memstore.New()))(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("X-Order", r.Header.Get("Idempotency-Key"))
		w.WriteHeader(http.StatusCreated)
		w.Header().Set("X-Order", "changed")
	}))
	seen := make(map[string]http.Header)
	for _, key := range []string{"a", "b", "c"} {
		seen[key] = serve(h, keyed(key)).Header()
	}
	for key, header := range seen {
		require.Equal(t, []string{key}, header["X-Order"])
	}
}
