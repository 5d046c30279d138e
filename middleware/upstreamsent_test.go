package middleware_test

import (
	"bufio"
	"context"
	"errors"
	"io"
	"log"
	"math"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httptrace"
	"net/http/httputil"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/httplatch/httplatch/internal/testkit/faketx"
	"github.com/httplatch/httplatch/internal/testkit/must"
	"github.com/httplatch/httplatch/internal/testkit/parallel"
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

// listen starts an upstream that serves one connection after the other.
func listen(t *testing.T, serve func(conn net.Conn)) *url.URL {
	t.Helper()
	listener := must.Get(new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0"))(t)
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
			serve(conn)
			_ = conn.Close()
		}
	}()
	return &url.URL{Scheme: "http", Host: listener.Addr().String()}
}

// wire is an upstream that answers with these bytes, and then closes the connection.
type wire struct {
	url   *url.URL
	posts atomic.Int64
}

// startWire starts one whose n-th answer on a connection, from 1 on, is answer(n). It reads at most limit bytes of a request.
func startWire(t *testing.T, limit int64, answer func(n int) string) *wire {
	t.Helper()
	w := new(wire)
	w.url = listen(t, func(conn net.Conn) {
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
	})
	return w
}

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
	// The wire hangs up after an answer: a request that is written meanwhile would be unknown.
	anew := func(http.RoundTripper) http.RoundTripper { return through(&http.Transport{DisableKeepAlives: true}) }
	for name, opts := range map[string][]lock.Option{"": nil, "run again": {lock.WithRerunAbandoned()}} {
		w := startWire(t, whole, func(int) string {
			if answer == "" {
				return ""
			}
			return "HTTP/1.1 " + answer
		})
		server := startServer(t, once(newLocker(t, memstore.New(), opts...))(proxyTo(t, w.url, anew)))
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

// TestUpstreamAnswers has the answers that "Behind a gateway" of docs/evidence/semantics.md does not have.
func TestUpstreamAnswers(t *testing.T) {
	t.Parallel()
	for answer, want := range map[string]string{
		"200 OK\r\nContent-Length: 2\r\n\r\nok":                            kept,
		"200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n": kept,
		"404 Not Found\r\nContent-Length: 0\r\n\r\n":                       kept,
		"401 Unauthorized\r\nContent-Length: 0\r\n\r\n":                    runs,
		"409 Conflict\r\nRetry-After: 1\r\nContent-Length: 0\r\n\r\n":      runs,
		"511 Authentication Required\r\nContent-Length: 0\r\n\r\n":         runs,
		// Of gateways further on, which have lost an answer themselves.
		"503 Upstream reset before headers\r\nContent-Length: 0\r\n\r\n": unknown,
		// Cut off.
		"": unknown,
		"500 Internal Server Error\r\nContent-Length: 9\r\n\r\nno":                                   unknown,
		"200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n": gone,
		// It ends with its connection, as if the upstream had died.
		"200 OK\r\n\r\nok": gone,
		// With a type: net/http makes one of the beginning of a body that comes with the header, or later.
		"500 Internal Server Error\r\nContent-Type: text/plain\r\n\r\nno": runs,
	} {
		parallel.Run(t, strings.ReplaceAll(answer, "\r\n", "|"), func(t *testing.T) {
			requireRepeat(t, upstream, answer, want)
		})
	}
}

// TestUpstreamStreams: the stream of an upstream reaches the client while the upstream waits.
func TestUpstreamStreams(t *testing.T) {
	t.Parallel()
	for name, value := range map[string]string{"Content-Type": "text/event-stream", "X-Accel-Buffering": "no"} {
		goOn := make(chan struct{})
		target := must.Get(url.Parse(startServer(t, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set(name, value)
			_, _ = io.WriteString(w, "data: 1\n\n")
			assert.NoError(t, http.NewResponseController(w).Flush())
			<-goOn
			_, _ = io.WriteString(w, "data: 2\n\n")
		})).URL))(t)
		server := startServer(t, once(newLocker(t, memstore.New()))(proxyTo(t, target, upstream)))
		answer, err := server.Client().Do(clientRequest(t, server.URL, "k"))
		require.NoError(t, err)
		begin := make([]byte, len("data: 1\n\n"))
		must.Get(io.ReadFull(answer.Body, begin))(t)
		require.Equal(t, "data: 1\n\n", string(begin))
		close(goOn)
		rest := must.Get(io.ReadAll(answer.Body))(t)
		require.NoError(t, answer.Body.Close())
		require.Equal(t, "data: 2\n\n", string(rest))
		again := exchanged(t, server, clientRequest(t, server.URL, "k"))
		require.Equal(t, "data: 1\n\ndata: 2\n\n", string(again.body))
		require.Equal(t, "true", again.header.Get("Idempotent-Replayed"))
	}
}

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
		server := startServer(t, once(newLocker(t, memstore.New()))(proxyTo(t, w.url, tt.via)))
		for range 2 {
			_ = over(t, server, keyedBody("k", strings.Repeat("x", 1<<20)))
		}
		require.Equal(t, tt.posts, w.posts.Load(), name)
	}
}

// TestNoHiddenRepeats: net/http repeats a request with a key by itself if a connection that was used before breaks,
// and the request has no body or a GetBody. Through Upstream it does not, with a guard and without one.
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
				parallel.Run(t, name+" "+header+" "+viaName, func(t *testing.T) {
					w := startWire(t, whole, func(n int) string {
						if n == 1 {
							return "HTTP/1.1 204 No Content\r\n\r\n"
						}
						return "" // the upstream has read the second request, and dies
					})
					base := &http.Transport{MaxConnsPerHost: 1}
					defer base.CloseIdleConnections()
					do := func() error {
						r := must.Get(http.NewRequestWithContext(t.Context(), http.MethodPost, w.url.String(), body()))(t)
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
		r := must.Get(http.NewRequestWithContext(t.Context(), http.MethodPost, w.url.String(), strings.NewReader("tea")))(t)
		r.Header.Set("Idempotency-Key", "k")
		require.NoError(t, sendBy(t, latch.Upstream(base), r))
	}
	require.EqualValues(t, 2, w.posts.Load())
	require.EqualValues(t, 2, dialled.Load())
}

// charging calls a provider by a client over base, and then gives its own answer, for any outcome of the call.
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

// TestHandlerAfterALostCall: its answer decides the answer to a repeat, and its failure does not free the key.
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
		"not sent":                       {refused, status(502), nil, 502, "", 2},
		"a base without hooks":           {func(*http.Request) (*http.Response, error) { return nil, errors.New("?") }, status(502), nil, 502, "outcome-unknown", 1},
	}
	for lockerName, locker := range map[string]func() (lock.Store, lock.Option){
		"memory":           func() (lock.Store, lock.Option) { return memstore.New(), patient },
		"run again":        func() (lock.Store, lock.Option) { return memstore.New(), lock.WithRerunAbandoned() },
		"in a transaction": func() (lock.Store, lock.Option) { return faketx.New(), lock.WithTransaction() },
	} {
		for name, tt := range tests {
			parallel.Run(t, lockerName+"/"+name, func(t *testing.T) {
				var e effects
				store, opt := locker()
				server := startServer(t, once(newLocker(t, store, opt), tt.opts...)(e.then(charging(t, tt.base, tt.answer))))
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

func ownCall(ctx context.Context) *http.Request {
	return httptest.NewRequestWithContext(ctx, http.MethodPost, "http://provider.example/", nil)
}

// TestNothingIsSentThatIsNotNoted: the store does not answer, and a crash would let the handler run again.
func TestNothingIsSentThatIsNotNoted(t *testing.T) {
	parallel.Bubble(t, func(t *testing.T) {
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
		behind = ownCall(context.WithoutCancel(r.Context()))
		w.WriteHeader(500)
	}))
	require.Equal(t, 500, serve(h, keyed("k")).Code)
	require.ErrorIs(t, sendBy(t, client, behind), lock.ErrLost)
	require.Zero(t, sent.Load())
}

// TestUpstreamElsewhere: a request that asks for no effect, or is outside of a guard, is sent as without Upstream.
func TestUpstreamElsewhere(t *testing.T) {
	t.Parallel()
	body := io.NopCloser(strings.NewReader("stream"))
	base := roundTrip(func(r *http.Request) (*http.Response, error) {
		connected(r)
		return &http.Response{StatusCode: 502, ProtoMajor: 1, ContentLength: -1, Header: http.Header{}, Body: body, Request: r}, nil
	})
	require.NoError(t, sendBy(t, latch.Upstream(base), ownCall(t.Context())))

	var e effects
	h := once(newLocker(t, memstore.New()))(e.then(func(w http.ResponseWriter, r *http.Request) {
		for _, method := range []string{"", http.MethodGet, "QUERY", "PROPFIND"} {
			call := ownCall(r.Context())
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
		res, err := client.RoundTrip(ownCall(r.Context()))
		require.NoError(t, err)
		require.Equal(t, "2", res.Header.Get("Content-Length"))
		require.NoError(t, res.Body.Close())
	})), keyed("k"))
}

// TestUpstreamWithoutALimit: the largest limit means none.
func TestUpstreamWithoutALimit(t *testing.T) {
	t.Parallel()
	by := latch.Upstream(roundTrip(func(r *http.Request) (*http.Response, error) {
		return &http.Response{
			StatusCode: 201, ProtoMajor: 2, ContentLength: -1, Header: http.Header{},
			Body: io.NopCloser(strings.NewReader("order 1")), Request: r,
		}, nil
	}))
	h := once(newLocker(t, memstore.New()), latch.WithBodyLimits(math.MaxInt64, math.MaxInt64))(
		http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			answer, err := by.RoundTrip(ownCall(r.Context()))
			require.NoError(t, err)
			defer answer.Body.Close()
			w.WriteHeader(answer.StatusCode)
			_, _ = io.Copy(w, answer.Body)
		}))
	requireReplay(t, serve(h, keyed("k")), serve(h, keyed("k")))
}
