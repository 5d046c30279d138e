package client_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/httplatch/httplatch/client"
	"github.com/httplatch/httplatch/internal/testkit/must"
	"github.com/httplatch/httplatch/internal/testkit/parallel"
	"github.com/httplatch/httplatch/keyfunc"
	"github.com/httplatch/httplatch/lock"
	"github.com/httplatch/httplatch/lock/memstore"
	latch "github.com/httplatch/httplatch/middleware"
)

// The signatures of go-retryablehttp, which docs/snippets tests with the real one.
var (
	_ func(context.Context, *http.Response, error) (bool, error)                    = client.CheckRetry
	_ func(low, high time.Duration, attempt int, resp *http.Response) time.Duration = client.Backoff
)

// TestCheckRetryDecidesAsTransport, for all problems and statuses.
func TestCheckRetryDecidesAsTransport(t *testing.T) {
	t.Parallel()
	check := func(method string, key bool, resp *http.Response) bool {
		resp.Request = request(t.Context(), t, method, "")
		if key {
			resp.Request.Header.Set("Idempotency-Key", "k")
		}
		return must.Get(client.CheckRetry(t.Context(), resp, nil))(t)
	}
	for _, tt := range kinds(t) {
		resp := problem(tt.status, tt.kind)()
		require.Equal(t, tt.again, check(http.MethodPost, true, resp), "%d %s", tt.status, tt.kind)
		require.Contains(t, bodyOf(t, resp), tt.kind, "the body is put back")
		require.False(t, check(http.MethodPost, false, problem(tt.status, tt.kind)()), "without a key")
	}
	for status := 200; status < 600; status++ {
		require.Equal(t, retriedStatuses[status], check(http.MethodPost, true, answer(status, "")()), "%d", status)
		require.Equal(t, retriedStatuses[status], check(http.MethodPut, false, answer(status, "")()), "%d", status)
		require.False(t, check(http.MethodPost, false, answer(status, "")()), "%d", status)
	}
	require.True(t, check(http.MethodPost, true, broken(409, `{"type":`, "Content-Type: application/problem+json")()))
}

func TestCheckRetryOfErrors(t *testing.T) {
	t.Parallel()
	keyed := client.WithKey(t.Context(), "k")
	for _, tt := range []struct {
		ctx   context.Context //nolint:containedctx // a row of a table
		op    string
		err   error
		again bool
	}{
		{keyed, "Post", io.EOF, true},
		{t.Context(), "Post", io.EOF, false},
		{client.WithKey(t.Context(), ""), "Post", io.EOF, false},
		{t.Context(), "Patch", io.EOF, false},
		{t.Context(), "Get", io.EOF, true},
		{t.Context(), "Delete", io.EOF, true},
		{t.Context(), "", io.EOF, false},
		{keyed, "Post", http.ErrSchemeMismatch, false},
	} {
		err := tt.err
		if tt.op != "" {
			err = &url.Error{Op: tt.op, URL: "http://shop.example", Err: err}
		}
		again, checkErr := client.CheckRetry(tt.ctx, nil, err)
		require.NoError(t, checkErr)
		require.Equal(t, tt.again, again, fmt.Sprint(tt.op, " ", tt.err))
	}
	must.No(t)(client.CheckRetry(keyed, nil, nil))
}

func TestCheckRetryAndTime(t *testing.T) {
	parallel.Bubble(t, func(t *testing.T) {
		busy := func(after string) *http.Response {
			resp := answer(503, "", "Retry-After: "+after)()
			resp.Request = request(t.Context(), t, http.MethodPut, "")
			return resp
		}
		for after, want := range map[string]bool{"1": true, "60": true, "61": false, "1000000000": false} {
			require.Equal(t, want, must.Get(client.CheckRetry(t.Context(), busy(after), nil))(t), after)
		}
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		for after, want := range map[string]bool{"9": true, "10": false} {
			require.Equal(t, want, must.Get(client.CheckRetry(ctx, busy(after), nil))(t), after)
		}
		ended, cancelCause := context.WithCancelCause(t.Context())
		why := errors.New("the user has gone")
		cancelCause(why)
		again, err := client.CheckRetry(ended, busy("1"), nil)
		require.Equal(t, why, err)
		require.False(t, again)
	})
}

// A repeat of the caller's request would get another random key.
func TestCheckRetryNeedsTheKeyOfTheCaller(t *testing.T) {
	t.Parallel()
	check := func(ctx context.Context, header string) bool {
		req := request(ctx, t, http.MethodPost, "tea")
		if header != "" {
			req.Header.Set("Idempotency-Key", header)
		}
		resp := must.Get(client.Transport(always(answer(503, "")), client.WithAttempts(1)).RoundTrip(req))(t)
		return must.Get(client.CheckRetry(ctx, resp, nil))(t)
	}
	require.False(t, check(t.Context(), ""))
	require.True(t, check(t.Context(), "k"))
	require.True(t, check(client.WithKey(t.Context(), "k"), ""))
	require.False(t, check(client.WithKey(t.Context(), ""), ""))
}

// TestCheckRetryAfterARedirect: a repeat begins with the first request again.
func TestCheckRetryAfterARedirect(t *testing.T) {
	t.Parallel()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodPost {
			http.Redirect(w, r, "/order", http.StatusSeeOther)
			return
		}
		w.WriteHeader(http.StatusServiceUnavailable)
	}))
	t.Cleanup(server.Close)
	for key, want := range map[string]bool{"": false, "k": true} {
		ctx := client.WithKey(t.Context(), key)
		c := &http.Client{Transport: client.Transport(server.Client().Transport, client.WithAttempts(1))}
		resp := must.Get(c.Do(must.Get(http.NewRequestWithContext(ctx, http.MethodPost, server.URL, http.NoBody))(t)))(t)
		require.Equal(t, http.MethodGet, resp.Request.Method)
		require.Equal(t, want, must.Get(client.CheckRetry(ctx, resp, nil))(t))
		_ = bodyOf(t, resp)
	}
}

// The request there has no key, and its connection breaks. A repeat would reach it once more.
func TestCheckRetryAfterARedirectToAnotherOrigin(t *testing.T) {
	t.Parallel()
	for status, want := range map[int]bool{http.StatusTemporaryRedirect: false, http.StatusSeeOther: true} {
		for _, broken := range []error{io.EOF, context.DeadlineExceeded} {
			b := &base{answer: func(n int, _ *http.Request) (*http.Response, error) {
				if n == 1 {
					return answer(status, "", "Location: https://other.example/orders")(), nil
				}
				return nil, broken
			}}
			ctx := client.WithKey(t.Context(), "k")
			c := &http.Client{Transport: client.Transport(b, client.WithAttempts(1))}
			_, err := c.Do(request(ctx, t, http.MethodPost, "tea"))
			require.ErrorIs(t, err, broken)
			failed, _ := errors.AsType[*url.Error](err)
			require.Equal(t, broken == context.DeadlineExceeded, failed.Timeout()) //nolint:errorlint // a row of the table
			require.Equal(t, want, must.Get(client.CheckRetry(ctx, nil, err))(t), "%d %v", status, broken)
		}
	}
}

// TestCheckRetryOfAnInvalidKey: nothing was sent, and nothing would be.
func TestCheckRetryOfAnInvalidKey(t *testing.T) {
	t.Parallel()
	ctx := client.WithKey(t.Context(), "draft 7")
	_, err := (&http.Client{Transport: client.Transport(always(created))}).Do(request(ctx, t, http.MethodPost, "tea"))
	require.ErrorContains(t, err, "client: a key has 1 to 255")
	must.No(t)(client.CheckRetry(ctx, nil, err))
}

var keySecret = latch.WithKeySecret([]byte("0123456789abcdef"))

// charges is a provider that notes the key of each call, "" for none.
type charges struct{ keys []string }

func (p *charges) RoundTrip(r *http.Request) (*http.Response, error) {
	p.keys = append(p.keys, keyIn(r))
	return answer(201, "charged")(), nil
}

// shopOf charges a card at the provider, by a call with the context of call, for each run of its handler.
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

// In a guarded handler Transport makes no key, and sends nothing without a key that the next run has, too.
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
		parallel.Run(t, name, func(t *testing.T) {
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

// A handler that calls by another client derives the key that Transport sends.
func TestStepMeetsDeriveKey(t *testing.T) {
	t.Parallel()
	p := &charges{}
	var derived string
	shop := shopOf(t, p, func(ctx context.Context) context.Context {
		derived = must.Get(latch.DeriveKey(ctx, "charge"))(t)
		return charge(ctx)
	}, keySecret)
	require.Equal(t, 201, buy(t, shop, "k").Code)
	require.Equal(t, []string{derived}, p.keys)
}

// After a connection error only the context shows that a request had a key that its repeat has, too.
func TestCheckRetryOfAStep(t *testing.T) {
	t.Parallel()
	lost := &url.Error{Op: "Post", Err: errors.New("connection reset by peer")}
	again := map[string]bool{}
	check := func(name string, ctx context.Context) { again[name] = must.Get(client.CheckRetry(ctx, nil, lost))(t) }
	shop := shopOf(t, &charges{}, func(ctx context.Context) context.Context {
		check("named", charge(ctx))
		check("not named", ctx)
		return charge(ctx)
	}, keySecret)
	require.Equal(t, 201, buy(t, shop, "k").Code)
	check("unguarded", charge(t.Context()))
	require.Equal(t, map[string]bool{"named": true, "not named": false, "unguarded": false}, again)
}

// A request without a name, or whose guard has no secret, is not sent by any repeat, although its method may be repeated.
func TestCheckRetryOfARequestThatIsNotSent(t *testing.T) {
	t.Parallel()
	p, checked := &charges{}, 0
	c := &http.Client{Transport: client.Transport(p)}
	check := func(ctx context.Context) {
		_, err := c.Do(must.Get(http.NewRequestWithContext(ctx, http.MethodPut, "http://provider.example/charges/7", nil))(t))
		require.ErrorContains(t, err, "not sent")
		must.No(t)(client.CheckRetry(ctx, nil, err))
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
