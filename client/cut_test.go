package client_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/httplatch/httplatch/client"
	"github.com/httplatch/httplatch/internal/testkit/cutproxy"
	"github.com/httplatch/httplatch/keyfunc"
	"github.com/httplatch/httplatch/lock"
	"github.com/httplatch/httplatch/lock/memstore"
	latch "github.com/httplatch/httplatch/middleware"
)

// shop is a server that places an order for each run of its handler. A request without a
// key is not guarded.
type shop struct {
	*httptest.Server
	mu     sync.Mutex
	orders map[string]int // by the order's text
}

func startShop(t *testing.T) *shop {
	t.Helper()
	locker := lock.New(memstore.New())
	s := &shop{orders: map[string]int{}}
	once := latch.Idempotent(locker, keyfunc.Global, keyfunc.Optional(keyfunc.IdempotencyKey))
	s.Server = httptest.NewServer(once(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		order := r.URL.RawQuery + string(body)
		s.mu.Lock()
		s.orders[order]++
		n := s.orders[order]
		s.mu.Unlock()
		w.WriteHeader(http.StatusCreated)
		_, _ = fmt.Fprintf(w, "%s, run %d", order, n)
	})))
	t.Cleanup(func() {
		s.Close()
		require.NoError(t, locker.Close(context.Background()))
	})
	return s
}

func (s *shop) effects(order string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.orders[order]
}

// intent is a way to send one order. Requests that differ in it are cut at each byte.
type intent struct {
	name   string
	reused bool // the connection was used before
	new    func(t *testing.T, url, order string) *http.Request
}

func intents() []intent {
	post := func(t *testing.T, url string, body io.Reader) *http.Request {
		t.Helper()
		req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, url, body)
		require.NoError(t, err)
		return req
	}
	forms := map[string]func(t *testing.T, url, order string) *http.Request{
		"body with GetBody": func(t *testing.T, url, order string) *http.Request {
			t.Helper()
			return post(t, url, strings.NewReader(order))
		},
		"body of unknown length": func(t *testing.T, url, order string) *http.Request {
			t.Helper()
			return post(t, url, plainReader{strings.NewReader(order)})
		},
		"no body": func(t *testing.T, url, order string) *http.Request {
			t.Helper()
			return post(t, url+"?"+order, nil)
		},
	}
	var all []intent
	for name, f := range forms {
		all = append(all, intent{name + ", new connection", false, f}, intent{name + ", reused connection", true, f})
	}
	return all
}

// TestCutAtEachByte: wherever the connection breaks, there is one effect, and the caller
// gets the answer of the run that had it.
func TestCutAtEachByte(t *testing.T) {
	t.Parallel()
	for _, in := range intents() {
		t.Run(in.name, func(t *testing.T) {
			t.Parallel()
			s := startShop(t)
			cuts := 0
			cutEverywhere(t, s, in, func(t *testing.T, url, order string, c *http.Client) {
				t.Helper()
				resp, err := c.Do(in.new(t, url, order))
				require.NoError(t, err)
				require.Equal(t, 201, resp.StatusCode)
				cuts += client.Attempts(resp) - 1
				require.Equal(t, order+", run 1", bodyOf(t, resp))
				require.Equal(t, 1, s.effects(order))
			}, func(base http.RoundTripper) http.RoundTripper {
				return client.Transport(base, client.WithBudget(1, 10), client.WithBackoff(time.Millisecond, time.Second))
			})
			t.Logf("%d attempts cut off, each answered in the end", cuts)
			require.Greater(t, cuts, 200, "that many attempts were cut off")
		})
	}
}

// TestCutDoubles is the twin: the same by hand and without a key has two effects
// wherever the answer is lost.
func TestCutDoubles(t *testing.T) {
	t.Parallel()
	for _, in := range intents() {
		t.Run(in.name, func(t *testing.T) {
			t.Parallel()
			s := startShop(t)
			doubled := 0
			cutEverywhere(t, s, in, func(t *testing.T, url, order string, c *http.Client) {
				t.Helper()
				var err error
				for range 2 {
					var resp *http.Response
					if resp, err = c.Do(in.new(t, url, order)); err == nil {
						_, err = io.ReadAll(resp.Body)
						resp.Body.Close()
					}
					if err == nil {
						break
					}
				}
				require.NoError(t, err)
				if s.effects(order) == 2 {
					doubled++
				}
			}, func(base http.RoundTripper) http.RoundTripper { return base })
			t.Logf("%d orders doubled", doubled)
			require.Greater(t, doubled, 100, "so many of the answers' bytes")
		})
	}
}

// cutEverywhere measures one order, and calls do for each byte of its request and its
// response, with the connection about to be cut there.
func cutEverywhere(t *testing.T, s *shop, in intent, do func(t *testing.T, url, order string, c *http.Client), wrap func(http.RoundTripper) http.RoundTripper) {
	t.Helper()
	p := cutproxy.Start(t, s.URL)
	url := p.URL() + "/orders"
	base := &http.Transport{}
	defer base.CloseIdleConnections()
	c := &http.Client{Transport: wrap(base), Timeout: time.Minute}
	p.Count()
	do(t, url, "order-000000", c)
	request, response := p.Counted()
	for dir, all := range map[cutproxy.Direction]int{cutproxy.Request: request, cutproxy.Response: response} {
		for n := range all {
			base.CloseIdleConnections()
			if in.reused {
				warmUp(t, &http.Client{Transport: base}, url)
			}
			p.Cut(dir, n)
			do(t, url, fmt.Sprintf("order-%d%05d", dir+1, n), c)
		}
	}
}
