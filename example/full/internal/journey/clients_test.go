package journey_test

import (
	"bytes"
	"context"
	"io"
	"net/http"
	"testing"
	"time"

	"github.com/hashicorp/go-retryablehttp"

	"github.com/httplatch/httplatch/client"
)

// send sends a request to the desk behind url, as a client does that its caller leaves alone
// with it.
type send func(ctx context.Context, url string, r request) (answer, error)

// sender is a kind of client.
type sender struct {
	name string
	new  func(t *testing.T, base *http.Transport) send

	// process is whether it is a process of its own for each request, which pauses for a
	// second, with a connection of its own.
	process bool

	// Whether it takes an answer that breaks off in its header for a whole one.
	mistaken bool
}

// The clients that send one key on all attempts.
var keyed = []sender{
	{"`client.Transport`", transport, false, false},
	{"go-retryablehttp, `client.CheckRetry`", retrying, false, false},
	{"`curl --retry` in a loop", curl, true, false},
}

// curlOnce shows why curl is run in a loop: an answer without Content-Length ends with the
// connection, and to curl that holds before the end of the header, too.
var curlOnce = sender{"`curl --retry`", runCurl, true, true}

// keyAlone does not repeat the refusal of a repeat that has met the first request.
var keyAlone = sender{"go-retryablehttp, a key", retryingWithKey, false, false}

// The twins: those that send none.
var keyless = []sender{
	{"go-retryablehttp with its defaults", retryingWithDefaults, false, false},
	{"`http.Client`, sent again by hand", byHand, false, false},
}

// shortest is the first pause of clients in this process: a repeat that comes at once is
// more likely to meet the first request.
const shortest = time.Millisecond

// transport is client.Transport as it is, but that each request of this test may be
// repeated, and soon.
func transport(_ *testing.T, base *http.Transport) send {
	c := &http.Client{
		Transport: client.Transport(base, client.WithBudget(1, 10), client.WithBackoff(shortest, time.Second)),
		Timeout:   time.Minute,
	}
	return func(ctx context.Context, url string, r request) (answer, error) {
		req, err := r.to(client.WithKey(ctx, r.key), url)
		if err != nil {
			return answer{}, err
		}
		return read(c.Do(req))
	}
}

// retrying is go-retryablehttp as docs/clients.md has it.
func retrying(_ *testing.T, base *http.Transport) send {
	c := retryable(client.Transport(base, client.WithAttempts(1)))
	c.CheckRetry, c.Backoff = client.CheckRetry, client.Backoff
	c.RetryMax = 10
	c.ErrorHandler = retryablehttp.PassthroughErrorHandler
	return func(ctx context.Context, url string, r request) (answer, error) {
		req, err := r.to(client.WithKey(ctx, r.key), url)
		if err != nil {
			return answer{}, err
		}
		again, err := retryablehttp.FromRequest(req)
		if err != nil {
			return answer{}, err
		}
		again.SetResponseHandler(func(resp *http.Response) error {
			defer resp.Body.Close()
			body, err := io.ReadAll(resp.Body)
			resp.Body = io.NopCloser(bytes.NewReader(body))
			return err
		})
		return read(c.Do(again))
	}
}

// retryingWithDefaults sends no key.
func retryingWithDefaults(t *testing.T, base *http.Transport) send {
	t.Helper()
	bare := retryingWithKey(t, base)
	return func(ctx context.Context, url string, r request) (answer, error) {
		r.key = ""
		return bare(ctx, url, r)
	}
}

// retryingWithKey sends a key, and decides as go-retryablehttp does what it repeats.
func retryingWithKey(_ *testing.T, base *http.Transport) send {
	c := retryable(base)
	return func(ctx context.Context, url string, r request) (answer, error) {
		req, err := r.to(ctx, url)
		if err != nil {
			return answer{}, err
		}
		if r.key != "" {
			req.Header.Set("Idempotency-Key", r.key)
		}
		again, err := retryablehttp.FromRequest(req)
		if err != nil {
			return answer{}, err
		}
		return read(c.Do(again))
	}
}

func retryable(base http.RoundTripper) *retryablehttp.Client {
	c := retryablehttp.NewClient()
	c.HTTPClient = &http.Client{Transport: base, Timeout: time.Minute}
	c.Logger, c.RetryWaitMin = nil, shortest
	return c
}

// byHand sends until there is a whole answer, without a key.
func byHand(_ *testing.T, base *http.Transport) send {
	c := &http.Client{Transport: base, Timeout: time.Minute}
	return func(ctx context.Context, url string, r request) (got answer, err error) {
		for range 4 {
			var req *http.Request
			if req, err = r.to(ctx, url); err != nil {
				return answer{}, err
			}
			if got, err = read(c.Do(req)); err == nil {
				return got, nil
			}
		}
		return got, err
	}
}
