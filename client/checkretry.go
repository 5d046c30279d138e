package client

import (
	"context"
	"errors"
	"net/http"
	"net/url"
	"strings"
	"time"
)

// CheckRetry decides as [Transport] does whether a request is sent again. It has the
// signature of CheckRetry in go-retryablehttp, which then counts the attempts and keeps
// the bodies:
//
//	c := retryablehttp.NewClient()
//	c.HTTPClient.Transport = client.Transport(c.HTTPClient.Transport, client.WithAttempts(1))
//	c.CheckRetry, c.Backoff = client.CheckRetry, client.Backoff
//	req, err := retryablehttp.NewRequestWithContext(client.WithKey(ctx, key), http.MethodPost, url, body)
//
// After a connection error no response shows whether the request had a key: a POST is
// then repeated only if its context has one ([WithKey], or [Step] in a guarded handler), and
// the Transport above takes the key from the context, too. A request without a key is not
// repeated unless its method is safe, PUT or DELETE.
//
// go-retryablehttp returns an answer before its body is read. To repeat a request whose answer
// breaks off, read the answer in a response handler (SetResponseHandler), and put the bytes
// back: without Latch-Problem, CheckRetry recognises a final problem by its body.
//
// CheckRetry returns false for an answer whose Retry-After is longer than a minute or does not
// fit the context's deadline. The error is the context's, or nil. CheckRetry reads up to 64 KiB
// of the body of a refusal, and puts them back. It has no retry budget.
func CheckRetry(ctx context.Context, resp *http.Response, err error) (bool, error) {
	if ctx.Err() != nil {
		return false, context.Cause(ctx)
	}
	if resp == nil && err == nil {
		return false, nil
	}
	key, _, _ := keyOf(ctx) // Transport returns the error
	method, keyed := methodOf(err), key != ""
	if resp != nil && resp.Request != nil {
		method = resp.Request.Method
		keyed = resp.Request.Header.Get(keyHeader) != ""
	}
	var p *Problem
	if err == nil {
		p, err = problemOf(resp)
		if after, ok := retryAfter(resp.Header); ok && !fits(ctx, after, defaultMaxWait) {
			return false, nil
		}
	}
	return judge(ctx, method, keyed, resp, p, err).again, nil
}

// methodOf returns the method of the request that failed with an error of [http.Client].
func methodOf(err error) string {
	if failed, ok := errors.AsType[*url.Error](err); ok {
		return strings.ToUpper(failed.Op)
	}
	return "unknown"
}

// fits reports whether a pause is at most room, and over before the context's deadline.
func fits(ctx context.Context, pause, room time.Duration) bool {
	if deadline, ok := ctx.Deadline(); ok && time.Until(deadline) <= pause {
		return false
	}
	return pause <= room
}
