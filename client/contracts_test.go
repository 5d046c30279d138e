package client_test

import (
	"context"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"

	"github.com/httplatch/httplatch/client"
)

// direct sends requests to a handler in its own process, as a network would.
type direct struct{ to http.Handler }

func (d direct) RoundTrip(r *http.Request) (*http.Response, error) {
	received := httptest.NewRequestWithContext(context.Background(), r.Method, "/checkout_sessions", r.Body)
	for name, values := range r.Header {
		received.Header.Set(name, values[0])
	}
	w := httptest.NewRecorder()
	d.to.ServeHTTP(w, received)
	return w.Result(), nil
}

// TestConflictsOfOthers: a 409 with JSON is in-progress only by the codes that say so, and its
// body is there afterwards.
func TestConflictsOfOthers(t *testing.T) {
	t.Parallel()
	for body, again := range map[string]bool{
		`{"type":"invalid_request","code":"idempotency_in_flight","message":"m"}`: true,
		`{"error":{"code":"idempotency_key_in_use"}}`:                             true,
		`{"code":"idempotency_conflict"}`:                                         false,
		`{"code":["idempotency_in_flight"]}`:                                      false,
		`{"message":"idempotency_in_flight"}`:                                     false,
		`["idempotency_in_flight"]`:                                               false,
		`idempotency_in_flight`:                                                   false,
		``:                                                                        false,
	} {
		conflict := answer(409, body, "Content-Type: application/json; charset=utf-8", "Retry-After: 1")
		synctest.Test(t, func(t *testing.T) {
			b := then(conflict, created)
			resp, err := client.Transport(b).RoundTrip(request(t.Context(), t, http.MethodPost, "tea"))
			require.NoError(t, err)
			require.Equal(t, again, len(b.sent) == 2, body)
			if !again {
				require.Equal(t, body, bodyOf(t, resp))
			}
		})
		b := then(answer(422, body, "Content-Type: application/json"), created)
		_, err := client.Transport(b).RoundTrip(request(t.Context(), t, http.MethodPost, "tea"))
		require.NoError(t, err)
		require.Len(t, b.sent, 1, "another status")
	}
}

// TestQuotedKeys: keys that are chosen here have quotes, and a server of this module takes them
// as the same keys.
func TestQuotedKeys(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		with   func(context.Context) context.Context
		header string
		opts   []client.Option
		sent   string
	}{
		"chosen":      {func(ctx context.Context) context.Context { return client.WithKey(ctx, "k") }, "", nil, `^"k"$`},
		"new":         {context.WithoutCancel, "", nil, `^"[A-Z2-7]{26}"$`},
		"WithNewKey":  {context.WithoutCancel, "", []client.Option{client.WithNewKey(func(*http.Request) string { return "n" })}, `^"n"$`},
		"none":        {func(ctx context.Context) context.Context { return client.WithKey(ctx, "") }, "", nil, `^$`},
		"in a header": {context.WithoutCancel, "h", nil, `^h$`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := always(created)
			r := request(c.with(t.Context()), t, http.MethodPost, "tea")
			if c.header != "" {
				r.Header.Set("Idempotency-Key", c.header)
			}
			resp, err := client.Transport(b, append(c.opts, client.WithQuotedKeys())...).RoundTrip(r)
			require.NoError(t, err)
			require.Regexp(t, c.sent, keyIn(b.sent[0].request))
			require.Equal(t, keyIn(b.sent[0].request), resp.Request.Header.Get("Idempotency-Key"))
		})
	}

	var keys []string
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		keys = append(keys, r.Header.Get("Idempotency-Key"))
		if r.URL.Path == "/" {
			http.Redirect(w, r, "/elsewhere", http.StatusTemporaryRedirect)
		}
	}))
	defer server.Close()
	base := &http.Transport{DisableKeepAlives: true}
	c := &http.Client{Transport: client.Transport(base, client.WithQuotedKeys())}
	resp, err := c.Post(server.URL, "text/plain", strings.NewReader("tea"))
	require.NoError(t, err)
	require.NoError(t, resp.Body.Close())
	require.Len(t, keys, 2)
	require.Regexp(t, `^"[A-Z2-7]{26}"$`, keys[0])
	require.Equal(t, keys[0], keys[1], "a redirect has the same key")
}
