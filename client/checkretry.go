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
// go-retryablehttp repeats the caller's request, and the Transport above would give it another
// random key. So a POST is repeated only if its context has a key ([WithKey], or [Step] in a guarded
// handler), or, after an answer, if the caller has set the header. A request without a key is not
// repeated unless its method is safe, PUT or DELETE. A repeat begins before the redirects, so this
// holds for each request that the answer's redirects have followed.
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
	harmless := key != "" || idempotent(methodOf(err))
	if resp != nil && resp.Request != nil {
		harmless = true
		for from := resp; from != nil && from.Request != nil; from = from.Request.Response { // through all redirects
			harmless = harmless && (idempotent(from.Request.Method) || keepsKey(from.Request, key))
		}
	}
	var p *Problem
	if err == nil {
		p, err = problemOf(resp)
		if after, ok := retryAfter(resp.Header); ok && !fits(ctx, after, defaultMaxWait) {
			return false, nil
		}
	}
	return harmless && judgeOutcome(ctx, resp, p, err).again, nil
}

// keepsKey reports whether r has a key, and a repeat has the same one, for requests whose context has
// key, or none. In place of a random key, Transport would make another one.
func keepsKey(r *http.Request, key string) bool {
	if c, ok := r.Context().Value(callContext{}).(*call); ok && key == "" {
		r = c.body.req
	}
	return r.Header.Get(keyHeader) != ""
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
