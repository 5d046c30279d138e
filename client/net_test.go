package client_test

import (
	"bufio"
	"fmt"
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
)

// breaking is a server whose connections break: it answers the first request of each
// connection, and closes the connection when it has read the second: the moment at which
// net/http sends some requests again by itself.
type breaking struct {
	listener net.Listener
	broken   atomic.Int64 // how many requests it has read and left without an answer
	answered atomic.Int64

	mu   sync.Mutex
	keys []string
	raw  []string // the lines that name the key
}

func startBreaking(t *testing.T) *breaking {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
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
			s.raw = append(s.raw, req.Header.Get("Content-Length")+fmt.Sprint(req.ContentLength, req.TransferEncoding))
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

// requests of the kinds that net/http sends again if they bear a key.
var resent = map[string]func(*testing.T, string) *http.Request{
	"POST without a body": func(t *testing.T, url string) *http.Request {
		t.Helper()
		req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, url, nil)
		require.NoError(t, err)
		return req
	},
	"POST with a body": func(t *testing.T, url string) *http.Request {
		t.Helper()
		req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, url, strings.NewReader("tea"))
		require.NoError(t, err)
		return req
	},
	"DELETE": func(t *testing.T, url string) *http.Request {
		t.Helper()
		req, err := http.NewRequestWithContext(t.Context(), http.MethodDelete, url, http.NoBody)
		require.NoError(t, err)
		return req
	},
}

// warmUp makes a connection that is used again.
func warmUp(t *testing.T, c *http.Client, url string) {
	t.Helper()
	resp, err := c.Get(url)
	require.NoError(t, err)
	_ = bodyOf(t, resp)
}

// TestNetHTTPDoesNotResend: when a connection that was used before breaks, only this package
// decides about further attempts.
func TestNetHTTPDoesNotResend(t *testing.T) {
	t.Parallel()
	for name, newRequest := range resent {
		for _, header := range []string{"", "Idempotency-Key", "X-Idempotency-Key"} {
			s := startBreaking(t)
			base := &http.Transport{}
			defer base.CloseIdleConnections()
			var attempts []client.Attempt
			hook := client.WithHook(func(a client.Attempt) { attempts = append(attempts, a) })
			c := &http.Client{Transport: client.Transport(base, hook, client.WithBackoff(time.Millisecond, time.Millisecond))}
			warmUp(t, c, s.url())
			attempts = nil
			req := newRequest(t, s.url())
			if header != "" {
				req.Header.Set(header, "mine")
			}
			resp, err := c.Do(req)
			require.NoError(t, err)
			require.Equal(t, "ok", bodyOf(t, resp))
			require.Equal(t, 2, client.Attempts(resp), "%s with %s: one that broke, one that was answered", name, header)
			require.Len(t, attempts, 2)
			require.EqualValues(t, 1, s.broken.Load())
			require.EqualValues(t, 1, s.answered.Load())
			key := resp.Request.Header.Get("Idempotency-Key")
			require.NotEmpty(t, key)
			require.Equal(t, []string{key, key}, s.keys)
			require.NotContains(t, s.raw[0], "chunked", "what is sent is otherwise the same")

			// With WithAttempts(1) there is one attempt, and its error is returned.
			warmUp(t, c, s.url()) // the connection is at its second request now, and breaks; GET is sent again
			once := &http.Client{Transport: client.Transport(base, client.WithAttempts(1))}
			before := s.broken.Load() + s.answered.Load()
			_, err = once.Do(newRequest(t, s.url()))
			require.Error(t, err, name)
			require.Equal(t, before+1, s.broken.Load()+s.answered.Load())
		}
	}
}

// TestNetHTTPResends is the twin: without this package, a key makes net/http send a request again,
// and the caller is not notified.
func TestNetHTTPResends(t *testing.T) {
	t.Parallel()
	for name, newRequest := range resent {
		s := startBreaking(t)
		base := &http.Transport{}
		defer base.CloseIdleConnections()
		c := &http.Client{Transport: base}
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
	base := &http.Transport{}
	defer base.CloseIdleConnections()
	for _, url := range []string{srv.URL, strings.Replace(plain.URL, "http:", "https:", 1)} {
		n := 0
		c := &http.Client{Transport: client.Transport(base, client.WithHook(func(client.Attempt) { n++ }))}
		_, err := c.Post(url, "text/plain", strings.NewReader("tea"))
		require.Error(t, err)
		require.Equal(t, 1, n, err.Error())
	}
}
