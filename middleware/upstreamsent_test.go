package middleware_test

import (
	"bufio"
	"context"
	"errors"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httptrace"
	"net/http/httputil"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/httplatch/httplatch/internal/testkit/faketx"
	"github.com/httplatch/httplatch/lock"
	"github.com/httplatch/httplatch/lock/memstore"
	latch "github.com/httplatch/httplatch/middleware"
)

var quietLog = log.New(io.Discard, "", 0)

// via is the way from a gateway to its upstream.
type via func(base http.RoundTripper) http.RoundTripper

var (
	upstream via = func(base http.RoundTripper) http.RoundTripper { return latch.Upstream(base) }
	plain    via = func(base http.RoundTripper) http.RoundTripper { return base }
)

type roundTrip func(r *http.Request) (*http.Response, error)

func (f roundTrip) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// wire is an upstream that answers with these bytes, and then closes the connection.
type wire struct {
	listener net.Listener
	posts    atomic.Int64
}

// startWire starts one whose n-th answer on a connection, from 1 on, is answer(n). It reads
// at most limit bytes of a request.
func startWire(t *testing.T, limit int64, answer func(n int) string) *wire {
	t.Helper()
	listener, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	require.NoError(t, err)
	w := &wire{listener: listener}
	done := make(chan struct{})
	t.Cleanup(func() {
		_ = listener.Close()
		<-done
	})
	go func() {
		defer close(done)
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			w.serve(conn, limit, answer)
		}
	}()
	return w
}

// serve serves one connection; the next one waits.
func (w *wire) serve(conn net.Conn, limit int64, answer func(n int) string) {
	defer func() { _ = conn.Close() }()
	in := bufio.NewReader(conn)
	for n := 1; ; n++ {
		r, err := http.ReadRequest(in)
		if err != nil {
			return
		}
		w.posts.Add(1)
		if read, _ := io.CopyN(io.Discard, r.Body, limit); read == limit {
			return
		}
		text := answer(n)
		_, _ = io.WriteString(conn, text)
		if !strings.HasPrefix(text, "HTTP/1.1 204") {
			return
		}
	}
}

func (w *wire) url() *url.URL { return &url.URL{Scheme: "http", Host: w.listener.Addr().String()} }

// proxyTo is a reverse proxy that reaches target by via.
func proxyTo(t *testing.T, target *url.URL, via via) *httputil.ReverseProxy {
	t.Helper()
	base := &http.Transport{}
	t.Cleanup(base.CloseIdleConnections)
	return &httputil.ReverseProxy{Rewrite: func(r *httputil.ProxyRequest) { r.SetURL(target) }, Transport: via(base), ErrorLog: quietLog}
}

const whole = 2 << 20 // more than a request has

// What the answer of an upstream implies for the repeat of its request.
const unknown, runs, kept, gone = "unknown", "runs", "kept", "gone"

// requireRepeat requires what an answer of an upstream implies that gives it to every request.
func requireRepeat(t *testing.T, through via, answer, want string) {
	t.Helper()
	// The wire hangs up after an answer: a request that is written meanwhile would be
	// unknown.
	anew := func(http.RoundTripper) http.RoundTripper { return through(&http.Transport{DisableKeepAlives: true}) }
	for name, opts := range map[string][]lock.Option{"": nil, "run again": {lock.WithRerunAbandoned()}} {
		w := startWire(t, whole, func(int) string {
			if answer == "" {
				return ""
			}
			return "HTTP/1.1 " + answer
		})
		server := startServer(t, once(newLocker(t, memstore.New(), opts...))(proxyTo(t, w.url(), anew)))
		first := exchanged(t, server, clientRequest(t, server.URL, "k"))
		again := exchanged(t, server, clientRequest(t, server.URL, "k"))
		require.NotContains(t, first.header, "Latch-Commit")
		require.NotContains(t, again.header, "Latch-Commit")
		switch want {
		case kept:
			require.Equal(t, "true", again.header.Get("Idempotent-Replayed"), name)
			again.header.Del("Idempotent-Replayed")
			require.Equal(t, first, again, name)
		case runs:
			require.Equal(t, first, again, name)
		case unknown:
			require.GreaterOrEqual(t, first.status, 502, name)
			require.Contains(t, string(again.body), "#outcome-unknown", name)
		case gone:
			require.Contains(t, string(again.body), "#result-not-replayable", name)
		}
		require.Equal(t, map[bool]int64{true: 2, false: 1}[want == runs], w.posts.Load(), name)
	}
}

// TestUpstreamAnswers checks, for an upstream that gives one answer to every request, the effect
// that the answer implies, and the answer to a repeat.
func TestUpstreamAnswers(t *testing.T) {
	t.Parallel()
	for answer, want := range map[string]string{
		"200 OK\r\nContent-Length: 2\r\n\r\nok":                            kept,
		"200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n": kept,
		"303 See Other\r\nLocation: /1\r\nContent-Length: 0\r\n\r\n":       kept,
		"404 Not Found\r\nContent-Length: 0\r\n\r\n":                       kept,
		"401 Unauthorized\r\nContent-Length: 0\r\n\r\n":                    runs,
		"429 Too Many Requests\r\nContent-Length: 0\r\n\r\n":               runs,
		"409 Conflict\r\nRetry-After: 1\r\nContent-Length: 0\r\n\r\n":      runs,
		"500 Internal Server Error\r\nContent-Length: 2\r\n\r\nno":         runs,
		"501 Not Implemented\r\nContent-Length: 0\r\n\r\n":                 runs,
		"503 Busy\r\nRetry-After: 1\r\nContent-Length: 0\r\n\r\n":          runs,
		"505 Version\r\nContent-Length: 0\r\n\r\n":                         runs,
		// Of gateways further on, which have lost an answer themselves.
		"502 Bad Gateway\r\nContent-Length: 0\r\n\r\n":                       unknown,
		"503 Upstream reset before headers\r\nContent-Length: 0\r\n\r\n":     unknown,
		"504 Gateway Timeout\r\nRetry-After: 1\r\nContent-Length: 0\r\n\r\n": unknown,
		"520 Unknown\r\nContent-Length: 0\r\n\r\n":                           unknown,
		"524 A Timeout Occurred\r\nContent-Length: 0\r\n\r\n":                unknown,
		// Cut off.
		"":                                      unknown,
		"200 OK\r\nContent-Le":                  unknown,
		"200 OK\r\nContent-Length: 9\r\n\r\nok": unknown,
		"200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n":                                    unknown,
		"500 Internal Server Error\r\nContent-Length: 9\r\n\r\nno":                                   unknown,
		"200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n": gone,
		// It ends with its connection, as if the upstream had died.
		"200 OK\r\n\r\nok": gone,
		// With a type: net/http makes one of the beginning of a body that comes with the header,
		// or later.
		"500 Internal Server Error\r\nContent-Type: text/plain\r\n\r\nno": runs,
	} {
		t.Run(strings.ReplaceAll(answer, "\r\n", "|"), func(t *testing.T) {
			t.Parallel()
			requireRepeat(t, upstream, answer, want)
		})
	}
}

// TestUpstreamStreams: the stream of an upstream reaches the client while the upstream waits.
func TestUpstreamStreams(t *testing.T) {
	t.Parallel()
	for name, value := range map[string]string{"Content-Type": "text/event-stream", "X-Accel-Buffering": "no"} {
		goOn := make(chan struct{})
		target, err := url.Parse(startServer(t, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set(name, value)
			_, _ = io.WriteString(w, "data: 1\n\n")
			assert.NoError(t, http.NewResponseController(w).Flush())
			<-goOn
			_, _ = io.WriteString(w, "data: 2\n\n")
		})).URL)
		require.NoError(t, err)
		server := startServer(t, once(newLocker(t, memstore.New()))(proxyTo(t, target, upstream)))
		answer, err := server.Client().Do(clientRequest(t, server.URL, "k"))
		require.NoError(t, err)
		begin := make([]byte, len("data: 1\n\n"))
		_, err = io.ReadFull(answer.Body, begin)
		require.NoError(t, err)
		require.Equal(t, "data: 1\n\n", string(begin))
		close(goOn)
		rest, err := io.ReadAll(answer.Body)
		require.NoError(t, err)
		require.NoError(t, answer.Body.Close())
		require.Equal(t, "data: 2\n\n", string(rest))
		again := exchanged(t, server, clientRequest(t, server.URL, "k"))
		require.Equal(t, "data: 1\n\ndata: 2\n\n", string(again.body))
		require.Equal(t, "true", again.header.Get("Idempotent-Replayed"))
	}
}

// exchanged sends r and returns its answer, or the zero exchange if there is none or it is
// incomplete.
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
	return exchange{res.StatusCode, res.Header, body, res.ContentLength, res.TransferEncoding}
}

// sendBy sends r, and returns why that failed.
func sendBy(t *testing.T, by http.RoundTripper, r *http.Request) error {
	t.Helper()
	res, err := by.RoundTrip(r)
	if err == nil {
		require.NoError(t, res.Body.Close())
	}
	return err
}

// TestHalfARequestIsUnknown: the upstream hangs up in the middle of the body.
func TestHalfARequestIsUnknown(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		via   via
		posts int64
	}{"Upstream": {upstream, 1}, "plain": {plain, 2}} {
		w := startWire(t, 1000, func(int) string { return "" })
		server := startServer(t, once(newLocker(t, memstore.New()))(proxyTo(t, w.url(), tt.via)))
		for range 2 {
			r := keyedBody("k", strings.Repeat("x", 1<<20))
			_ = over(t.Context(), t, server, r)
		}
		require.Equal(t, tt.posts, w.posts.Load(), name)
	}
}

// TestNoHiddenRepeats: net/http repeats a request with a key by itself if a connection that was
// used before breaks, and the request has no body or a GetBody. Through Upstream it does not, with
// a guard and without one.
func TestNoHiddenRepeats(t *testing.T) {
	t.Parallel()
	for name, body := range map[string]func() io.Reader{
		"without a body": func() io.Reader { return nil },
		"with GetBody":   func() io.Reader { return strings.NewReader("tea") },
	} {
		for _, header := range []string{"Idempotency-Key", "X-Idempotency-Key"} {
			for viaName, tt := range map[string]struct {
				via   via
				posts int64
			}{"Upstream": {upstream, 2}, "plain": {plain, 3}} {
				t.Run(name+" "+header+" "+viaName, func(t *testing.T) {
					t.Parallel()
					w := startWire(t, whole, func(n int) string {
						if n == 1 {
							return "HTTP/1.1 204 No Content\r\n\r\n"
						}
						return "" // the upstream has read the second request, and dies
					})
					base := &http.Transport{MaxConnsPerHost: 1}
					defer base.CloseIdleConnections()
					do := func() error {
						r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, w.url().String(), body())
						require.NoError(t, err)
						r.Header.Set(header, "k")
						defer func() { require.Equal(t, "k", r.Header.Get(header), "the caller's request is not changed") }()
						return sendBy(t, tt.via(base), r)
					}
					require.NoError(t, do())
					_ = do()
					require.Equal(t, tt.posts, w.posts.Load())
				})
			}
		}
	}
}

// TestUpstreamOverHTTP2: a stream that is reset, and a server that is gone.
func TestUpstreamOverHTTP2(t *testing.T) {
	t.Parallel()
	var e effects
	server := startServerOf(t, e.then(func(http.ResponseWriter, *http.Request) {
		if e.n.Load() == 1 {
			return // the connection is there
		}
		panic(http.ErrAbortHandler)
	}), true)
	target, err := url.Parse(server.URL)
	require.NoError(t, err)
	base, ok := server.Client().Transport.(*http.Transport)
	require.True(t, ok)
	base.DisableKeepAlives = false
	proxy := proxyTo(t, target, upstream)
	proxy.Transport = latch.Upstream(base)
	proxy.ModifyResponse = func(r *http.Response) error {
		require.Equal(t, 2, r.ProtoMajor)
		return nil
	}
	h := once(newLocker(t, memstore.New()))(proxy)
	bare := func(key string) *httptest.ResponseRecorder {
		r := keyed(key)
		r.Body, r.ContentLength = http.NoBody, 0
		return serve(h, r)
	}
	require.Equal(t, 200, bare("first").Code)
	require.Equal(t, 502, bare("k").Code)
	requireProblem(t, wantProblem{status: 409, kind: "outcome-unknown"}, bare("k"))
	e.require(t, 2)
	server.CloseClientConnections()
	server.Close()
	base.CloseIdleConnections()
	require.Equal(t, 502, bare("unsent").Code)
	require.Equal(t, 502, bare("unsent").Code, "the key is free")
}

// failingConn fails the second write, of which nothing leaves.
type failingConn struct {
	net.Conn
	writes atomic.Int64
}

func (c *failingConn) Write(p []byte) (int, error) {
	if c.writes.Add(1) == 2 {
		_ = c.Close()
		return 0, errors.New("reset")
	}
	return c.Conn.Write(p)
}

// TestDeadConnectionIsReplaced: net/http knows that nothing was written to it.
func TestDeadConnectionIsReplaced(t *testing.T) {
	t.Parallel()
	w := startWire(t, whole, func(int) string { return "HTTP/1.1 204 No Content\r\n\r\n" })
	var dialled atomic.Int64
	base := &http.Transport{DialContext: func(ctx context.Context, network, address string) (net.Conn, error) {
		conn, err := new(net.Dialer).DialContext(ctx, network, address)
		if dialled.Add(1) > 1 || err != nil {
			return conn, err
		}
		return &failingConn{Conn: conn}, nil
	}}
	defer base.CloseIdleConnections()
	for range 2 {
		r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, w.url().String(), strings.NewReader("tea"))
		require.NoError(t, err)
		r.Header.Set("Idempotency-Key", "k")
		require.NoError(t, sendBy(t, latch.Upstream(base), r))
	}
	require.EqualValues(t, 2, w.posts.Load())
	require.EqualValues(t, 2, dialled.Load())
}

// charging calls a provider by a client over base, and then gives its own answer, for any outcome
// of the call.
func charging(t *testing.T, base http.RoundTripper, answer func(w http.ResponseWriter, r *http.Request, err error)) http.HandlerFunc {
	t.Helper()
	client := &http.Client{Transport: latch.Upstream(base)}
	return func(w http.ResponseWriter, r *http.Request) {
		call, err := http.NewRequestWithContext(r.Context(), http.MethodPost, "http://provider.example/charges", strings.NewReader("{}"))
		require.NoError(t, err)
		res, err := client.Do(call)
		if err == nil {
			_ = res.Body.Close()
		}
		answer(w, r, err)
	}
}

// lost is a base through which a request leaves, and no answer comes back.
func lost(r *http.Request) (*http.Response, error) {
	connected(r)
	return nil, errors.New("lost")
}

// refused is a base that gets no connection.
func refused(r *http.Request) (*http.Response, error) {
	if trace := httptrace.ContextClientTrace(r.Context()); trace != nil {
		trace.GetConn("provider.example:80")
	}
	return nil, errors.New("refused")
}

func connected(r *http.Request) {
	if trace := httptrace.ContextClientTrace(r.Context()); trace != nil {
		trace.GetConn("provider.example:80")
		trace.GotConn(httptrace.GotConnInfo{})
	}
}

func replies(status int) roundTrip {
	return func(r *http.Request) (*http.Response, error) {
		connected(r)
		return &http.Response{StatusCode: status, ProtoMajor: 1, ContentLength: 0, Header: http.Header{}, Body: http.NoBody, Request: r}, nil
	}
}

// TestHandlerAfterALostCall: its answer decides the answer to a repeat, and its failure does not
// free the key.
func TestHandlerAfterALostCall(t *testing.T) {
	t.Parallel()
	status := func(code int) func(http.ResponseWriter, *http.Request, error) {
		return func(w http.ResponseWriter, _ *http.Request, _ error) { w.WriteHeader(code) }
	}
	tests := map[string]struct {
		base   roundTrip
		answer func(w http.ResponseWriter, r *http.Request, err error)
		opts   []latch.IdempotentOption
		first  int
		again  string // "": the first answer
		runs   int64
	}{
		"it fails":              {lost, status(500), nil, 500, "outcome-unknown", 1},
		"it says not now":       {lost, status(429), nil, 429, "outcome-unknown", 1},
		"it knows better":       {lost, status(202), nil, 202, "", 1},
		"it refuses":            {lost, status(422), nil, 422, "", 1},
		"it keeps its failures": {lost, status(500), []latch.IdempotentOption{latch.WithFinal(func(int) bool { return true })}, 500, "", 1},
		"it has committed": {lost, func(w http.ResponseWriter, r *http.Request, _ error) {
			require.NoError(t, lock.Commit(r.Context()))
			w.WriteHeader(500)
		}, nil, 500, "", 1},
		"it panics": {lost, func(http.ResponseWriter, *http.Request, error) { panic(http.ErrAbortHandler) }, nil, 0, "outcome-unknown", 1},
		"its failure is a stream": {lost, func(w http.ResponseWriter, _ *http.Request, _ error) {
			w.WriteHeader(500)
			_ = http.NewResponseController(w).Flush()
		}, nil, 500, "outcome-unknown", 1},
		"a call that went well":          {replies(201), status(201), nil, 201, "", 1},
		"a call that went well, then no": {replies(201), status(500), nil, 500, "outcome-unknown", 1},
		"a call that was refused":        {replies(402), status(500), nil, 500, "", 2},
		"a call that failed":             {replies(500), status(502), nil, 502, "", 2},
		"not sent":                       {refused, status(502), nil, 502, "", 2},
		"a base without hooks":           {func(*http.Request) (*http.Response, error) { return nil, errors.New("?") }, status(502), nil, 502, "outcome-unknown", 1},
	}
	lockers := map[string]func(t *testing.T) *lock.Locker{
		"memory": func(t *testing.T) *lock.Locker { t.Helper(); return newLocker(t, memstore.New()) },
		"redis":  func(t *testing.T) *lock.Locker { t.Helper(); return newLocker(t, redisStore(t), patient) },
		"run again": func(t *testing.T) *lock.Locker {
			t.Helper()
			return newLocker(t, memstore.New(), lock.WithRerunAbandoned())
		},
		"in a transaction": func(t *testing.T) *lock.Locker {
			t.Helper()
			return newLocker(t, faketx.New(), lock.WithTransaction())
		},
	}
	for lockerName, locker := range lockers {
		for name, tt := range tests {
			t.Run(lockerName+"/"+name, func(t *testing.T) {
				t.Parallel()
				var e effects
				l := locker(t)
				server := startServer(t, once(l, tt.opts...)(e.then(charging(t, tt.base, tt.answer))))
				first := exchanged(t, server, clientRequest(t, server.URL, "k"))
				again := exchanged(t, server, clientRequest(t, server.URL, "k"))
				require.Equal(t, tt.first, first.status)
				if lockerName == "in a transaction" && name == "it has committed" {
					tt.again = "outcome-unknown" // its rows are rolled back, and its answer is not kept
				}
				if tt.again == "" {
					require.Equal(t, tt.first, again.status)
				} else {
					require.Equal(t, 409, again.status)
					require.Contains(t, string(again.body), "#"+tt.again)
				}
				e.require(t, tt.runs)
			})
		}
	}
}

// TestNothingIsSentThatIsNotNoted: the store does not answer, and a crash would let the
// handler run again.
func TestNothingIsSentThatIsNotNoted(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		dying := &mortalStore{Store: memstore.New()}
		l := newLocker(t, dying, lock.WithRerunAbandoned())
		var sent atomic.Int64
		base := roundTrip(func(r *http.Request) (*http.Response, error) { sent.Add(1); return lost(r) })
		var e effects
		h := once(l)(e.then(func(w http.ResponseWriter, r *http.Request) {
			dying.Dead.Store(true)
			charging(t, base, func(w http.ResponseWriter, _ *http.Request, err error) {
				require.ErrorIs(t, err, lock.ErrUnavailable)
				w.WriteHeader(503)
			})(w, r)
			dying.Dead.Store(false)
		}))
		require.Equal(t, 503, serve(h, keyed("k")).Code)
		require.Equal(t, 503, serve(h, keyed("k")).Code)
		require.Zero(t, sent.Load())
		e.require(t, 2)
	})
}

// TestCallBehindTheHandlerIsRefused: its key is free, and a repeat may be at work.
func TestCallBehindTheHandlerIsRefused(t *testing.T) {
	t.Parallel()
	var sent atomic.Int64
	client := latch.Upstream(roundTrip(func(r *http.Request) (*http.Response, error) { sent.Add(1); return replies(200)(r) }))
	var behind *http.Request
	h := once(newLocker(t, memstore.New()))(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		behind = httptest.NewRequestWithContext(context.WithoutCancel(r.Context()), http.MethodPost, "http://provider.example/", nil)
		w.WriteHeader(500)
	}))
	require.Equal(t, 500, serve(h, keyed("k")).Code)
	require.ErrorIs(t, sendBy(t, client, behind), lock.ErrLost)
	require.Zero(t, sent.Load())
}

// TestUpstreamElsewhere: a request that asks for no effect, or is outside of a guard, is sent as
// without Upstream.
func TestUpstreamElsewhere(t *testing.T) {
	t.Parallel()
	body := io.NopCloser(strings.NewReader("stream"))
	base := roundTrip(func(r *http.Request) (*http.Response, error) {
		connected(r)
		return &http.Response{StatusCode: 502, ProtoMajor: 1, ContentLength: -1, Header: http.Header{}, Body: body, Request: r}, nil
	})
	require.NoError(t, sendBy(t, latch.Upstream(base), httptest.NewRequestWithContext(t.Context(), http.MethodPost, "http://provider.example/", nil)))

	var e effects
	h := once(newLocker(t, memstore.New()))(e.then(func(w http.ResponseWriter, r *http.Request) {
		for _, method := range []string{"", http.MethodGet, http.MethodHead, http.MethodOptions, http.MethodTrace, "QUERY", "PROPFIND", "REPORT", "SEARCH"} {
			call := httptest.NewRequestWithContext(r.Context(), http.MethodGet, "http://provider.example/", nil)
			call.Method = method
			res, err := latch.Upstream(base).RoundTrip(call)
			require.NoError(t, err)
			require.Equal(t, body, res.Body)
			require.NoError(t, res.Body.Close())
			require.Equal(t, call, res.Request)
		}
		w.WriteHeader(500)
	}))
	require.Equal(t, 500, serve(h, keyed("k")).Code)
	require.Equal(t, 500, serve(h, keyed("k")).Code)
	e.require(t, 2)
}

// TestUpstreamOfABaseWithoutHeaders: a base of a program's own may return an answer without any.
func TestUpstreamOfABaseWithoutHeaders(t *testing.T) {
	t.Parallel()
	client := latch.Upstream(roundTrip(func(*http.Request) (*http.Response, error) {
		return &http.Response{StatusCode: 200, ContentLength: -1, Body: io.NopCloser(strings.NewReader("ok"))}, nil
	}))
	serve(once(newLocker(t, memstore.New()))(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		res, err := client.RoundTrip(httptest.NewRequestWithContext(r.Context(), http.MethodPost, "http://provider.example/", nil))
		require.NoError(t, err)
		require.Equal(t, "2", res.Header.Get("Content-Length"))
		require.NoError(t, res.Body.Close())
	})), keyed("k"))
}
