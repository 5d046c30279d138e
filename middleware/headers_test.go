package middleware_test

import (
	"fmt"
	"io"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/httplatch/httplatch/internal/testkit/parallel"
	"github.com/httplatch/httplatch/lock/memstore"
	latch "github.com/httplatch/httplatch/middleware"
)

// before adds values to Vary before the handler runs, and whenSent when its answer is sent, as middleware that compresses does.
func before(values ...string) func(next http.Handler) http.Handler {
	return func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			for _, v := range values {
				w.Header().Add("Vary", v)
			}
			next.ServeHTTP(w, r)
		})
	}
}

func whenSent(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		next.ServeHTTP(writerFunc{w, sync.OnceFunc(func() { w.Header().Add("Vary", "Origin") })}, r)
	})
}

// outerMiddleware changes the headers of its own request, outside of a guard.
var outerMiddleware = map[string]func(next http.Handler) http.Handler{
	"nothing":                         before(),
	"adds before":                     before("Origin"),
	"adds two before":                 before("Origin", "Cookie"),
	"adds when it is sent":            whenSent,
	"adds before and when it is sent": func(next http.Handler) http.Handler { return before("Cookie")(whenSent(next)) },
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

// TestListHeadersOfOuterMiddlewareSurviveReplays: a replay, also with a body that WithReplay has changed, has the
// headers that the bare handler would have sent behind the middleware of the repeat.
func TestListHeadersOfOuterMiddlewareSurviveReplays(t *testing.T) {
	t.Parallel()
	changes := latch.WithReplay(func(_ *http.Request, a *latch.Answer) error { a.Body = []byte("changed"); return nil })
	for inner, set := range innerHandlers {
		handler := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			set(w.Header())
			w.WriteHeader(http.StatusCreated)
		})
		for first, outerFirst := range outerMiddleware {
			for repeat, outerRepeat := range outerMiddleware {
				parallel.Run(t, "handler "+inner+", first "+first+", repeat "+repeat, func(t *testing.T) {
					for _, opt := range []latch.IdempotentOption{latch.With(), changes} {
						guarded := once(newLocker(t, memstore.New()), opt)(handler)
						require.Equal(t, vary(serve(outerFirst(handler), keyed("k")).Header()), vary(serve(outerFirst(guarded), keyed("k")).Header()))
						again := serve(outerRepeat(guarded), keyed("k")).Header()
						require.Equal(t, "true", again.Get("Idempotent-Replayed"))
						require.Equal(t, vary(serve(outerRepeat(handler), keyed("k")).Header()), vary(again))
					}
				})
			}
		}
	}
}

// hostileHeaders are names and values that net/http does not send as they are.
var hostileHeaders = map[string]http.Header{
	"the mark of the record":   {":Location": {"/evil"}, ":status": {"200"}, ":": {"x"}},
	"no name":                  {"": {"x"}},
	"no token":                 {"X Y": {"x"}, "X\r\nEvil": {"x"}, "Ünicode": {"x"}, "X:": {"x"}, "X\x00": {"x"}, "X@": {"x"}},
	"lower case":               {"x-lower": {"x"}},
	"both cases":               {"X-Both": {"1"}, "x-both": {"2"}},
	"a line break":             {"X-A": {"a\r\nEvil: 1", "fine"}, "Location": {"/x\nSet-Cookie: a=b"}},
	"spaces, other characters": {"X-A": {"  a  ", "\tb\t", "a\tb", "ö", "\xff"}},
	"empty values":             {"X-A": {""}, "X-B": {}, "X-C": nil},
	"a broken type":            {"Content-Type": {"text/plain\r\nEvil: 1"}},
	"no type":                  {"Content-Type": nil},
	"no date":                  {"Date": nil},
	"a broken length":          {"Content-Length": {"seven"}},
	"cookies":                  {"Set-Cookie": {"a=b"}, "set-cookie": {"c=d"}, "Set-Cookie:": {"e=f"}},
	"marked itself":            {"Idempotent-Replayed": {"false"}},
}

// TestReplayHasTheHeadersThatWentOut sends them through real servers, and the repeat over the other protocol too.
func TestReplayHasTheHeadersThatWentOut(t *testing.T) {
	t.Parallel()
	for name, hostile := range hostileHeaders {
		for _, firstHTTP2 := range []bool{false, true} {
			for _, againHTTP2 := range []bool{false, true} {
				if firstHTTP2 != againHTTP2 && (name == "a line break" || name == "a broken type") {
					continue // net/http sends these in two ways
				}
				parallel.Run(t, name+fmt.Sprint(", HTTP/2: ", firstHTTP2, againHTTP2), func(t *testing.T) {
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
	first := over(t, startServerOf(t, guarded, firstHTTP2), keyed("k"))
	again := over(t, startServerOf(t, guarded, againHTTP2), keyed("k"))
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

// FuzzReplayHeaders: for any name and values of a header, the repeat has the header that the first client got.
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
		first.Header.Del("Date")
		again.Header.Del("Date")
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
			parallel.Run(t, v.name+", the handler "+handler, func(t *testing.T) {
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

// The twin: other headers of outer middleware belong to its own request, unless WithKeepHeaders names them.
func TestOtherHeadersOfOuterMiddlewareAreOfTheRepeat(t *testing.T) {
	t.Parallel()
	answer := http.HandlerFunc(created)
	coding := headerValues{"Content-Encoding", "gzip", "identity"}.behind(once(newLocker(t, memstore.New()))(answer))
	require.Equal(t, "gzip", serve(coding, keyed("k")).Header().Get("Content-Encoding"))
	require.Equal(t, "identity", serve(coding, keyed("k")).Header().Get("Content-Encoding"), "of the middleware that compresses")

	id := headerValues{"X-Request-Id", "1", "2"}
	h := id.behind(once(newLocker(t, memstore.New()), latch.WithKeepHeaders("x-request-ID"), latch.WithKeepHeaders("X-Other"))(answer))
	requireReplay(t, serve(h, keyed("k")), serve(h, keyed("k")))
}

func TestKeepHeadersRefusesWhatIsNeverKept(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"Set-Cookie", "set-cookie", "Authorization", "Connection", "Content-Length", "Date", "Proxy-X", "", "not a token", "Idempotent-Replayed"} {
		require.PanicsWithValue(t, fmt.Sprintf("middleware.WithKeepHeaders(%q): no answer is kept with this header", name),
			func() { latch.WithKeepHeaders("X-Kept-09", name) })
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
	server := startServer(t, once(newLocker(t, memstore.New()))(handler))
	for _, replayed := range []string{"", "true"} {
		answer := over(t, server, keyed("k"))
		require.Equal(t, replayed, answer.header.Get("Idempotent-Replayed"))
		require.Equal(t, []string{"first", "1"}, answer.header.Values("X-Order"))
	}
}

// The headers that outer middleware reads after the guard has returned do not change with the guard's later answers.
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
