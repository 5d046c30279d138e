package snippets_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hashicorp/go-retryablehttp"
	"github.com/stretchr/testify/require"

	"github.com/httplatch/httplatch/client"
	"github.com/httplatch/httplatch/internal/testkit/cutproxy"
	"github.com/httplatch/httplatch/internal/testkit/must"
	"github.com/httplatch/httplatch/internal/testkit/parallel"
	"github.com/httplatch/httplatch/internal/testkit/testmain"
	"github.com/httplatch/httplatch/keyfunc"
	"github.com/httplatch/httplatch/lock"
	"github.com/httplatch/httplatch/lock/memstore"
	latch "github.com/httplatch/httplatch/middleware"
)

func placeOrderOverHTTP(url, order string) (*http.Response, error) {
	c := &http.Client{Transport: client.Transport(nil), Timeout: 30 * time.Second}
	resp, err := c.Post(url, "application/json", strings.NewReader(order))
	return resp, err
}

func clientOfTheShop() *http.Client {
	return &http.Client{
		Timeout: 30 * time.Second,
		Transport: client.Transport(http.DefaultTransport,
			client.WithAttempts(6),
			client.WithHook(func(a client.Attempt) {
				slog.Info("sent", "key", a.Request.Header.Get("Idempotency-Key"), "attempt", a.Number,
					"status", a.Status, "problem", a.Problem, "error", a.Err, "again", a.Again, "reason", a.Reason)
			})),
	}
}

type draft struct{ ID, Order string }

// sendDraft sends a draft. It is called until it returns nil, by any process.
func sendDraft(ctx context.Context, c *http.Client, url string, d draft) error {
	ctx = client.WithKey(ctx, d.ID) // stored with the draft, before it is sent for the first time
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, url, strings.NewReader(d.Order))
	if err != nil {
		return err
	}
	resp, err := c.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if p, ok := client.ParseProblem(resp); ok {
		return p
	}
	if resp.StatusCode != http.StatusCreated {
		return fmt.Errorf("the shop answered %s", resp.Status)
	}
	return nil
}

func needsAPerson(err error) bool {
	var p *client.Problem
	if !errors.As(err, &p) {
		return false // a connection, for instance: send it again later
	}
	switch p.Kind() {
	case "outcome-unknown", "result-not-replayable", "key-reused":
		return true
	}
	return false
}

func retrying(base http.RoundTripper) *retryablehttp.Client {
	c := retryablehttp.NewClient()
	c.HTTPClient.Transport = client.Transport(base, client.WithAttempts(1))
	c.CheckRetry, c.Backoff = client.CheckRetry, client.Backoff
	c.RetryMax = 10
	c.ErrorHandler = retryablehttp.PassthroughErrorHandler // the last answer, and not only "giving up"
	return c
}

func postRetrying(ctx context.Context, c *retryablehttp.Client, url, key, order string) (*http.Response, error) {
	req, err := retryablehttp.NewRequestWithContext(client.WithKey(ctx, key), http.MethodPost, url, strings.NewReader(order))
	if err != nil {
		return nil, err
	}
	req.SetResponseHandler(func(resp *http.Response) error { // so that an answer that breaks off is repeated, too
		defer resp.Body.Close()
		answer, err := io.ReadAll(resp.Body)
		resp.Body = io.NopCloser(bytes.NewReader(answer)) // CheckRetry reads it as well
		return err
	})
	return c.Do(req)
}

type lossy struct {
	base http.RoundTripper
	lost atomic.Bool
}

func (l *lossy) RoundTrip(r *http.Request) (*http.Response, error) {
	resp, err := l.base.RoundTrip(r)
	if err == nil && l.lost.CompareAndSwap(false, true) {
		resp.Body.Close()
		return nil, errors.New("connection reset by peer")
	}
	return resp, err
}

// keyedShop takes orders, each key once; those without a key are not guarded.
func keyedShop(t *testing.T) (url string, orders *atomic.Int64, base *http.Transport) {
	t.Helper()
	orders, base = new(atomic.Int64), &http.Transport{}
	once := latch.Idempotent(lock.New(memstore.New()), keyfunc.Global, keyfunc.Optional(keyfunc.IdempotencyKey))
	srv := httptest.NewServer(once(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		n := orders.Add(1)
		w.WriteHeader(http.StatusCreated)
		_, _ = fmt.Fprintf(w, "order %d", n)
	})))
	t.Cleanup(func() { base.CloseIdleConnections(); srv.Close() })
	return srv.URL, orders, base
}

func TestClientsPage(t *testing.T) {
	t.Parallel()
	url, orders, _ := keyedShop(t)
	resp, err := placeOrderOverHTTP(url, `{"sku":"tea"}`)
	require.NoError(t, err)
	defer resp.Body.Close()
	require.Equal(t, 1, client.Attempts(resp))

	c := clientOfTheShop()
	c.Transport = client.Transport(&lossy{base: c.Transport})
	for range 2 { // the second is another process, after a restart
		require.NoError(t, sendDraft(t.Context(), c, url, draft{"draft-7", `{"sku":"tea"}`}))
	}
	require.EqualValues(t, 2, orders.Load())

	err = sendDraft(t.Context(), c, url, draft{"draft-7", `{"sku":"coffee"}`})
	require.ErrorContains(t, err, "key-reused")
	require.True(t, needsAPerson(err))
	require.False(t, needsAPerson(io.EOF))
	require.False(t, needsAPerson(&client.Problem{}))
}

func quick(c *retryablehttp.Client) *retryablehttp.Client {
	c.Logger, c.RetryWaitMin, c.RetryWaitMax = nil, time.Millisecond, time.Millisecond
	return c
}

// TestRetryableHTTP: the decision of client.CheckRetry without a key, in the real go-retryablehttp.
func TestRetryableHTTP(t *testing.T) {
	t.Parallel()
	url, orders, base := keyedShop(t)
	// Without a key it fails once instead of doing it twice.
	_, err := postRetrying(t.Context(), quick(retrying(&lossy{base: base})), url, "", `{"sku":"tea"}`) //nolint:bodyclose // there is none
	require.ErrorContains(t, err, "connection reset")
	require.EqualValues(t, 1, orders.Load())

	// The twin: as it comes, it orders twice.
	c := quick(retryablehttp.NewClient())
	c.HTTPClient.Transport = &lossy{base: base}
	resp, err := c.Post(url, "application/json", strings.NewReader(`{"sku":"tea"}`))
	require.NoError(t, err)
	resp.Body.Close()
	require.EqualValues(t, 1+2, orders.Load())
}

// TestRetryableHTTPReadsAnswers: wherever the connection breaks, one order is placed, and its answer
// arrives, because it is read in the response handler.
func TestRetryableHTTPReadsAnswers(t *testing.T) {
	t.Parallel()
	url, orders, base := keyedShop(t)
	p := cutproxy.Start(t, url)
	order := func() {
		t.Helper()
		n := orders.Load() + 1
		resp, err := postRetrying(t.Context(), quick(retrying(base)), p.URL(), fmt.Sprintf("draft-%05d", n), "tea")
		require.NoError(t, err)
		defer resp.Body.Close()
		require.Equal(t, fmt.Sprintf("order %d", n), string(must.Get(io.ReadAll(resp.Body))(t)))
		require.Equal(t, n, orders.Load())
	}
	p.Count()
	order()
	sent, whole := p.Counted()
	for dir, all := range map[cutproxy.Direction]int{cutproxy.Request: sent, cutproxy.Response: whole} {
		for n := range all {
			base.CloseIdleConnections()
			p.Cut(dir, n)
			order()
			require.False(t, p.Waiting())
		}
	}

	// The twin: the caller reads the answer, and is alone with what is missing.
	base.CloseIdleConnections()
	p.Cut(cutproxy.Response, whole-1)
	req := must.Get(retryablehttp.NewRequestWithContext(client.WithKey(t.Context(), "draft"), http.MethodPost, p.URL(), nil))(t)
	resp, err := quick(retrying(base)).Do(req)
	require.NoError(t, err)
	defer resp.Body.Close()
	_, err = io.ReadAll(resp.Body)
	require.ErrorIs(t, err, io.ErrUnexpectedEOF)
}

// TestCurl: the commands of the page end with the answer to one order, wherever it was cut off, in
// its header too.
func TestCurl(t *testing.T) {
	testmain.SkipIn(t, testmain.Quick, "pauses between attempts")
	t.Parallel()
	if _, err := exec.LookPath("curl"); err != nil {
		testmain.Unavailable(t, "no curl: what it does when its connection is cut is not shown", err)
	}
	_, script, found := strings.Cut(read(t, "../clients.md"), "## curl\n\n```sh\n")
	require.True(t, found)
	script, _, _ = strings.Cut(script, "```")
	for _, n := range []int{0, 10, 60, 120} {
		parallel.Run(t, fmt.Sprint(n), func(t *testing.T) {
			url, orders, _ := keyedShop(t)
			p := cutproxy.Start(t, url)
			p.Cut(cutproxy.Response, n)
			run := exec.CommandContext(t.Context(), "sh", "-c", strings.NewReplacer("$(uuidgen)", "draft", "https://shop.example", p.URL()).Replace(script))
			run.Dir = t.TempDir()
			run.Env = append(os.Environ(), "CURL_HOME="+run.Dir, "HOME="+run.Dir, "no_proxy=*")
			out, err := run.CombinedOutput()
			require.NoError(t, err, "%s", out)
			require.False(t, p.Waiting())
			require.EqualValues(t, 1, orders.Load())
			require.Equal(t, "order 1", read(t, filepath.Join(run.Dir, "answer.json")))
		})
	}
}
