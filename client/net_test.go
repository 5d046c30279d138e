package client_test

import (
	"bufio"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/httplatch/httplatch/client"
	"github.com/httplatch/httplatch/internal/testkit/must"
)

// breaking is a server whose connections break: it answers the first request of each connection, and closes the connection
// when it has read the second: the moment at which net/http sends some requests again by itself.
type breaking struct {
	listener net.Listener
	broken   atomic.Int64 // how many requests it has read and left without an answer
	answered atomic.Int64

	mu      sync.Mutex
	keys    []string
	chunked bool // a body was sent in chunks
}

func startBreaking(t *testing.T) *breaking {
	t.Helper()
	l := must.Get(net.Listen("tcp", "127.0.0.1:0"))(t)
	s := &breaking{listener: l}
	var serving sync.WaitGroup
	serving.Go(func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			serving.Go(func() { s.serve(conn) })
		}
	})
	t.Cleanup(func() { l.Close(); serving.Wait() })
	return s
}

func (s *breaking) serve(conn net.Conn) {
	defer conn.Close()
	r := bufio.NewReader(conn)
	for n := 1; ; n++ {
		req, err := http.ReadRequest(r)
		if err != nil {
			return
		}
		_, _ = io.Copy(io.Discard, req.Body)
		if req.Method != http.MethodGet {
			s.mu.Lock()
			s.keys = append(s.keys, req.Header.Get("Idempotency-Key"))
			s.chunked = s.chunked || len(req.TransferEncoding) > 0
			s.mu.Unlock()
		}
		if n == 2 {
			s.broken.Add(1)
			return
		}
		if req.Method != http.MethodGet {
			s.answered.Add(1)
		}
		_, _ = io.WriteString(conn, "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")
	}
}

func (s *breaking) url() string { return "http://" + s.listener.Addr().String() + "/" }

// resent are requests of the kinds that net/http sends again if they bear a key.
var resent = map[string]func(*testing.T, string) *http.Request{
	"POST without a body": sends(http.MethodPost, func() io.Reader { return nil }),
	"POST with a body":    sends(http.MethodPost, func() io.Reader { return strings.NewReader("tea") }),
	"DELETE":              sends(http.MethodDelete, func() io.Reader { return http.NoBody }),
}

func sends(method string, body func() io.Reader) func(*testing.T, string) *http.Request {
	return func(t *testing.T, url string) *http.Request {
		t.Helper()
		return must.Get(http.NewRequestWithContext(t.Context(), method, url, body()))(t)
	}
}

// warmUp makes a connection that is used again.
func warmUp(t *testing.T, c *http.Client, url string) {
	t.Helper()
	_ = bodyOf(t, must.Get(c.Get(url))(t))
}

// When a connection that was used before breaks, only this package decides about further attempts.
func TestNetHTTPDoesNotResend(t *testing.T) {
	t.Parallel()
	for name, newRequest := range resent {
		for _, header := range []string{"", "Idempotency-Key", "X-Idempotency-Key"} {
			s := startBreaking(t)
			base := wire(t)
			var attempts []client.Attempt
			hook := client.WithHook(func(a client.Attempt) { attempts = append(attempts, a) })
			c := &http.Client{Transport: client.Transport(base, hook, client.WithBackoff(time.Millisecond, time.Millisecond))}
			warmUp(t, c, s.url())
			attempts = nil
			req := newRequest(t, s.url())
			if header != "" {
				req.Header.Set(header, "mine")
			}
			resp := must.Get(c.Do(req))(t)
			require.Equal(t, "ok", bodyOf(t, resp))
			require.Equal(t, 2, client.Attempts(resp), "%s with %s: one that broke, one that was answered", name, header)
			require.Len(t, attempts, 2)
			require.EqualValues(t, 1, s.broken.Load())
			require.EqualValues(t, 1, s.answered.Load())
			key := resp.Request.Header.Get("Idempotency-Key")
			require.NotEmpty(t, key)
			require.Equal(t, []string{key, key}, s.keys)
			require.False(t, s.chunked, "what is sent is otherwise the same")

			// With WithAttempts(1) there is one attempt, and its error is returned.
			warmUp(t, c, s.url()) // the connection is at its second request now, and breaks; GET is sent again
			once := &http.Client{Transport: client.Transport(base, client.WithAttempts(1))}
			before := s.broken.Load() + s.answered.Load()
			_, err := once.Do(newRequest(t, s.url()))
			require.Error(t, err, name)
			require.Equal(t, before+1, s.broken.Load()+s.answered.Load())
		}
	}
}

// TestNetHTTPResends is the twin: without this package, a key makes net/http send a request again, and no caller is notified.
func TestNetHTTPResends(t *testing.T) {
	t.Parallel()
	for name, newRequest := range resent {
		s := startBreaking(t)
		c := &http.Client{Transport: wire(t)}
		warmUp(t, c, s.url())
		req := newRequest(t, s.url())
		req.Header.Set("Idempotency-Key", "mine")
		resp, err := c.Do(req)
		require.NoError(t, err, name)
		_ = bodyOf(t, resp)
		require.EqualValues(t, 2, s.broken.Load()+s.answered.Load(), "%s: one call, two requests", name)
	}
}

// TestHTTP2: the key arrives once, however it is spelled.
func TestHTTP2(t *testing.T) {
	t.Parallel()
	keys := make(chan []string, 10)
	var n atomic.Int64
	srv := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		keys <- append([]string{r.Proto}, r.Header["Idempotency-Key"]...)
		if n.Add(1)%2 == 1 {
			panic(http.ErrAbortHandler) // resets the stream
		}
		w.WriteHeader(http.StatusCreated)
	}))
	srv.EnableHTTP2 = true
	srv.StartTLS()
	defer srv.Close()
	c := &http.Client{Transport: client.Transport(srv.Client().Transport)}
	for name, newRequest := range resent {
		resp, err := c.Do(newRequest(t, srv.URL))
		require.NoError(t, err, name)
		_ = bodyOf(t, resp)
		require.Equal(t, 2, client.Attempts(resp), name)
		for range 2 {
			require.Equal(t, []string{"HTTP/2.0", resp.Request.Header.Get("Idempotency-Key")}, <-keys, name)
		}
	}
}

// TestCertificates: a server that is not the right one gets no second try.
func TestCertificates(t *testing.T) {
	t.Parallel()
	srv := httptest.NewUnstartedServer(http.NotFoundHandler())
	srv.Config.ErrorLog = log.New(io.Discard, "", 0)
	srv.StartTLS()
	defer srv.Close()
	plain := httptest.NewServer(http.NotFoundHandler())
	defer plain.Close()
	for _, url := range []string{srv.URL, strings.Replace(plain.URL, "http:", "https:", 1)} {
		n := 0
		c := &http.Client{Transport: client.Transport(wire(t), client.WithHook(func(client.Attempt) { n++ }))}
		_, err := c.Post(url, "text/plain", strings.NewReader("tea"))
		require.Error(t, err)
		require.Equal(t, 1, n, err.Error())
	}
}

// origin is a server that redirects as the path of a request says, and records the requests.
type origin struct {
	*httptest.Server
	mu  sync.Mutex
	got []string
}

func startOrigin(t *testing.T, to map[string]string, status int) *origin {
	t.Helper()
	o := &origin{}
	o.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		o.mu.Lock()
		o.got = append(o.got, strings.TrimSpace(r.Method+" "+r.URL.Path+" "+r.Header.Get("Idempotency-Key")+" "+r.Header.Get("X-Idempotency-Key")))
		o.mu.Unlock()
		if next, ok := to[r.URL.Path]; ok {
			http.Redirect(w, r, next, status)
		}
	}))
	t.Cleanup(o.Close)
	return o
}

func TestRedirects(t *testing.T) {
	t.Parallel()
	for _, status := range []int{307, 308} {
		for _, body := range []string{"", "tea"} {
			for _, header := range []string{"", "Idempotency-Key", "X-Idempotency-Key"} {
				there := startOrigin(t, map[string]string{}, status)
				here := startOrigin(t, map[string]string{"/a": "/b", "/b": "/c", "/away": there.URL + "/x"}, status)
				c := &http.Client{Transport: client.Transport(wire(t))}
				post := func(path string) *http.Response {
					ctx := client.WithKey(t.Context(), "k")
					req := must.Get(http.NewRequestWithContext(ctx, http.MethodPost, here.URL+path, strings.NewReader(body)))(t)
					if header != "" {
						req.Header.Set(header, "mine")
					}
					resp := must.Get(c.Do(req))(t)
					_ = bodyOf(t, resp)
					return resp
				}
				key := map[string]string{"": "k", "Idempotency-Key": "mine", "X-Idempotency-Key": "k mine"}[header]

				post("/a")
				require.Equal(t, []string{"POST /a " + key, "POST /b " + key, "POST /c " + key}, here.got, "the same request has the same key")

				resp := post("/away")
				require.Equal(t, []string{"POST /x"}, there.got, "with no key")
				require.Empty(t, resp.Request.Header.Get("Idempotency-Key"))
				require.Empty(t, resp.Request.Header.Get("X-Idempotency-Key"))
			}
		}
	}
}

// TestRedirectsCopyTheKey is the twin: net/http sends a key to any origin that the server names.
func TestRedirectsCopyTheKey(t *testing.T) {
	t.Parallel()
	there := startOrigin(t, nil, 307)
	here := startOrigin(t, map[string]string{"/away": there.URL + "/x"}, 307)
	req := must.Get(http.NewRequestWithContext(t.Context(), http.MethodPost, here.URL+"/away", nil))(t)
	req.Header.Set("Idempotency-Key", "mine")
	_ = bodyOf(t, must.Get((&http.Client{Transport: wire(t)}).Do(req))(t))
	require.Equal(t, []string{"POST /x mine"}, there.got)
}

// The request after the redirect has the key of the first request, and not a new one.
func TestRedirectWithARandomKey(t *testing.T) {
	t.Parallel()
	for length, opts := range map[int][]client.Option{26: nil, 28: {client.WithQuotedKeys()}} {
		here := startOrigin(t, map[string]string{"/a": "/b"}, 307)
		c := &http.Client{Transport: client.Transport(wire(t), opts...)}
		resp := must.Get(c.Post(here.URL+"/a", "text/plain", strings.NewReader("tea")))(t)
		_ = bodyOf(t, resp)
		key := resp.Request.Header.Get("Idempotency-Key")
		require.Len(t, key, length)
		require.Equal(t, []string{"POST /a " + key, "POST /b " + key}, here.got)
	}
}

// A request that was once elsewhere has no key, even back where it was made.
func TestRedirectAwayAndBack(t *testing.T) {
	t.Parallel()
	hops := map[string]string{
		"http://shop.example/orders":     "https://shop.example/orders",
		"https://shop.example/orders":    "https://SHOP.example:443/again",
		"https://SHOP.example:443/again": "http://shop.example:80/back",
	}
	b := &base{answer: func(_ int, r *http.Request) (*http.Response, error) {
		if next, ok := hops[r.URL.String()]; ok {
			return answer(308, "", "Location: "+next)(), nil
		}
		return answer(503, "")(), nil
	}}
	resp := must.Get((&http.Client{Transport: client.Transport(b)}).Do(request(t.Context(), t, http.MethodPost, "tea")))(t)
	require.Equal(t, "http://shop.example:80/back", resp.Request.URL.String())
	require.Len(t, b.sent, 4, "without a key, a POST is not sent again")
	require.NotEmpty(t, keyIn(b.sent[0].request))
	for _, s := range b.sent[1:] {
		require.Empty(t, keyIn(s.request), s.request.URL.String())
	}
}
