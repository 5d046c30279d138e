package client_test

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/httplatch/httplatch/client"
)

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
				base := &http.Transport{}
				defer base.CloseIdleConnections()
				c := &http.Client{Transport: client.Transport(base)}
				post := func(path string) *http.Response {
					ctx := client.WithKey(t.Context(), "k")
					req, err := http.NewRequestWithContext(ctx, http.MethodPost, here.URL+path, strings.NewReader(body))
					require.NoError(t, err)
					if header != "" {
						req.Header.Set(header, "mine")
					}
					resp, err := c.Do(req)
					require.NoError(t, err)
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

// TestRedirectsCopyTheKey is the twin: net/http sends a key to any origin that the
// server names.
func TestRedirectsCopyTheKey(t *testing.T) {
	t.Parallel()
	there := startOrigin(t, nil, 307)
	here := startOrigin(t, map[string]string{"/away": there.URL + "/x"}, 307)
	base := &http.Transport{}
	defer base.CloseIdleConnections()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, here.URL+"/away", nil)
	require.NoError(t, err)
	req.Header.Set("Idempotency-Key", "mine")
	resp, err := (&http.Client{Transport: base}).Do(req)
	require.NoError(t, err)
	_ = bodyOf(t, resp)
	require.Equal(t, []string{"POST /x mine"}, there.got)
}

// TestRedirectWithARandomKey: the request after the redirect has the key of the first request,
// and not a new one.
func TestRedirectWithARandomKey(t *testing.T) {
	t.Parallel()
	here := startOrigin(t, map[string]string{"/a": "/b"}, 307)
	base := &http.Transport{}
	defer base.CloseIdleConnections()
	c := &http.Client{Transport: client.Transport(base)}
	resp, err := c.Post(here.URL+"/a", "text/plain", strings.NewReader("tea"))
	require.NoError(t, err)
	_ = bodyOf(t, resp)
	key := resp.Request.Header.Get("Idempotency-Key")
	require.Len(t, key, 26)
	require.Equal(t, []string{"POST /a " + key, "POST /b " + key}, here.got)
}

// TestRedirectAwayAndBack: a request that was once elsewhere has no key, even back where it was
// made.
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
	resp, err := (&http.Client{Transport: client.Transport(b)}).Do(request(t.Context(), t, http.MethodPost, "tea"))
	require.NoError(t, err)
	require.Equal(t, "http://shop.example:80/back", resp.Request.URL.String())
	require.Len(t, b.sent, 4, "without a key, a POST is not sent again")
	require.NotEmpty(t, keyIn(b.sent[0].request))
	for _, s := range b.sent[1:] {
		require.Empty(t, keyIn(s.request), s.request.URL.String())
	}
}
