package client_test

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/httplatch/httplatch/client"
	"github.com/httplatch/httplatch/keyfunc"
	"github.com/httplatch/httplatch/lock"
	"github.com/httplatch/httplatch/lock/memstore"
	latch "github.com/httplatch/httplatch/middleware"
)

var keySecret = latch.WithKeySecret([]byte("0123456789abcdef"))

// charges is a provider that notes the key of each call, "" for none.
type charges struct{ keys []string }

func (p *charges) RoundTrip(r *http.Request) (*http.Response, error) {
	p.keys = append(p.keys, keyIn(r))
	return answer(201, "charged")(), nil
}

// shopOf charges a card at the provider, by a call with the context of call, for each run of its
// handler.
func shopOf(t *testing.T, p *charges, call func(ctx context.Context) context.Context, opts ...latch.IdempotentOption) http.Handler {
	t.Helper()
	locker := lock.New(memstore.New())
	t.Cleanup(func() { require.NoError(t, locker.Close(context.Background())) })
	c := &http.Client{Transport: client.Transport(p, client.WithAttempts(1))}
	once := latch.Idempotent(locker, keyfunc.Global, keyfunc.Optional(keyfunc.IdempotencyKey), opts...)
	return once(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		req, err := http.NewRequestWithContext(call(r.Context()), http.MethodPost, "http://provider.example/charges", strings.NewReader("{}"))
		require.NoError(t, err)
		resp, err := c.Do(req)
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadGateway)
			return
		}
		resp.Body.Close()
		w.WriteHeader(http.StatusCreated)
	}))
}

// buy sends one order, up to three times, and returns the last answer.
func buy(t *testing.T, shop http.Handler, key string) (w *httptest.ResponseRecorder) {
	t.Helper()
	for range 3 {
		r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/orders", nil)
		if key != "" {
			r.Header.Set("Idempotency-Key", key)
		}
		w = httptest.NewRecorder()
		if shop.ServeHTTP(w, r); w.Code < 500 {
			break
		}
	}
	return w
}

func charge(ctx context.Context) context.Context { return client.Step(ctx, "charge") }

// TestKeysInAHandler: in a guarded handler Transport makes no key, and sends nothing without a key
// that the next run has, too.
func TestKeysInAHandler(t *testing.T) {
	t.Parallel()
	same := func(ctx context.Context) context.Context { return ctx }
	for name, c := range map[string]struct {
		call func(context.Context) context.Context
		opts []latch.IdempotentOption
		key  string // of the customer
		says string // the error, or ""
		sent string // pattern of the key
	}{
		"named":                   {charge, []latch.IdempotentOption{keySecret}, "k", "", "^[A-Z2-7]{32}$"},
		"not named":               {same, []latch.IdempotentOption{keySecret}, "k", "name the call with client.Step", ""},
		"not named, no secret":    {same, nil, "k", "name the call with client.Step", ""},
		"named, no secret":        {charge, nil, "k", `"charge" was not sent: the guard has no secret`, ""},
		"an empty name":           {func(ctx context.Context) context.Context { return client.Step(ctx, "") }, []latch.IdempotentOption{keySecret}, "k", "no name", ""},
		"a key":                   {func(ctx context.Context) context.Context { return client.WithKey(ctx, "own") }, nil, "k", "", "^own$"},
		"a key after a name":      {func(ctx context.Context) context.Context { return client.WithKey(charge(ctx), "own") }, nil, "k", "", "^own$"},
		"a name after a key":      {func(ctx context.Context) context.Context { return charge(client.WithKey(ctx, "own")) }, []latch.IdempotentOption{keySecret}, "k", "", "^[A-Z2-7]{32}$"},
		"no key by name":          {func(ctx context.Context) context.Context { return client.WithKey(ctx, "") }, nil, "k", "", "^$"},
		"unguarded":               {same, []latch.IdempotentOption{keySecret}, "", "", "^[A-Z2-7]{26}$"},
		"named, but unguarded":    {charge, []latch.IdempotentOption{keySecret}, "", "", "^[A-Z2-7]{26}$"},
		"not the handler's":       {func(context.Context) context.Context { return context.Background() }, []latch.IdempotentOption{keySecret}, "k", "", "^[A-Z2-7]{26}$"},
		"of the context's values": {context.WithoutCancel, []latch.IdempotentOption{keySecret}, "k", "name the call with client.Step", ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := &charges{}
			w := buy(t, shopOf(t, p, c.call, c.opts...), c.key)
			if c.says != "" {
				require.Equal(t, 502, w.Code)
				require.Contains(t, w.Body.String(), c.says)
				require.Empty(t, p.keys)
				return
			}
			require.Equal(t, 201, w.Code, w.Body)
			require.Len(t, p.keys, 1)
			require.Regexp(t, c.sent, p.keys[0])
		})
	}
}

// TestStepMeetsDeriveKey: a handler that calls by another client derives the key that Transport
// sends.
func TestStepMeetsDeriveKey(t *testing.T) {
	t.Parallel()
	p := &charges{}
	var derived string
	shop := shopOf(t, p, func(ctx context.Context) context.Context {
		var err error
		derived, err = latch.DeriveKey(ctx, "charge")
		require.NoError(t, err)
		return charge(ctx)
	}, keySecret)
	require.Equal(t, 201, buy(t, shop, "k").Code)
	require.Equal(t, []string{derived}, p.keys)
}

// TestCheckRetryOfAStep: after a connection error only the context shows that a request had a
// key that its repeat has, too.
func TestCheckRetryOfAStep(t *testing.T) {
	t.Parallel()
	lost := &url.Error{Op: "Post", Err: errors.New("connection reset by peer")}
	again := map[string]bool{}
	check := func(name string, ctx context.Context) {
		var err error
		again[name], err = client.CheckRetry(ctx, nil, lost)
		require.NoError(t, err)
	}
	shop := shopOf(t, &charges{}, func(ctx context.Context) context.Context {
		check("named", charge(ctx))
		check("not named", ctx)
		return charge(ctx)
	}, keySecret)
	require.Equal(t, 201, buy(t, shop, "k").Code)
	check("unguarded", charge(t.Context()))
	require.Equal(t, map[string]bool{"named": true, "not named": false, "unguarded": false}, again)
}

// TestCheckRetryOfARequestThatIsNotSent: a request without a name, or whose guard has no secret, is
// not sent by any repeat, although its method may be repeated.
func TestCheckRetryOfARequestThatIsNotSent(t *testing.T) {
	t.Parallel()
	p, checked := &charges{}, 0
	c := &http.Client{Transport: client.Transport(p)}
	check := func(ctx context.Context) {
		req, err := http.NewRequestWithContext(ctx, http.MethodPut, "http://provider.example/charges/7", nil)
		require.NoError(t, err)
		_, err = c.Do(req)
		require.ErrorContains(t, err, "not sent")
		again, err := client.CheckRetry(ctx, nil, err)
		require.NoError(t, err)
		require.False(t, again)
		checked++
	}
	shop := shopOf(t, &charges{}, func(ctx context.Context) context.Context {
		check(ctx)
		check(charge(ctx))
		return client.WithKey(ctx, "own")
	})
	require.Equal(t, 201, buy(t, shop, "k").Code)
	require.Equal(t, 2, checked)
	require.Empty(t, p.keys)
}
