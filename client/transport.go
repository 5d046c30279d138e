package client

import (
	"context"
	"errors"
	"io"
	"net/http"
	"time"
)

// Transport returns a round tripper that sends requests through base, gives them a key,
// and sends them again, as the documentation of this package says. base is
// [http.DefaultTransport] if it is nil. Use one for all requests to a server, because its
// budget is shared; it is safe for concurrent use. It starts no goroutine.
//
// The round tripper does not change the requests that it gets. If a key of [WithKey] or
// [WithNewKey] is not valid, or a request of a guarded handler has neither a key nor a name
// ([Step]), RoundTrip returns an error and sends nothing. Transport panics on a nil Option.
func Transport(base http.RoundTripper, opts ...Option) http.RoundTripper {
	if base == nil {
		base = http.DefaultTransport
	}
	c := newConfig(opts)
	return &transport{base: base, config: c, budget: newBudget(c.perRequest, c.burst)}
}

type transport struct {
	base http.RoundTripper
	config
	budget *budget
}

// CloseIdleConnections is called by [http.Client.CloseIdleConnections].
func (t *transport) CloseIdleConnections() {
	if c, ok := t.base.(interface{ CloseIdleConnections() }); ok {
		c.CloseIdleConnections()
	}
}

func (t *transport) RoundTrip(req *http.Request) (*http.Response, error) {
	if !mayCarryKey(req) {
		return t.base.RoundTrip(req)
	}
	header, keyed, err := t.headerOf(req)
	if err != nil {
		if req.Body != nil {
			_ = req.Body.Close()
		}
		return nil, err
	}
	t.budget.deposit()
	c := &call{transport: t, wire: header, keyed: keyed, began: time.Now()}
	c.shown = req.WithContext(context.WithValue(req.Context(), callContext{}, c))
	c.shown.Header = header
	limit := t.bodyLimit
	if t.attempts == 1 || !keyed && !idempotent(req.Method) {
		limit = 0 // there is no other attempt
	}
	c.body = newBody(req, limit)
	if keyed && c.body.empty() {
		c.wire = hideKey(header)
	}
	defer c.body.finish()
	resp, err := c.run(c.body.first())
	switch {
	case err == nil:
		c.makeResumable(resp)
	case !keyed && req.Response != nil && !idempotent(req.Method):
		err = finalError{err} // a redirect has led away from the origin of the key
	}
	return resp, err
}

// mayCarryKey reports whether the request can have a key. For an incomplete request, the base
// returns the error.
func mayCarryKey(req *http.Request) bool {
	return req.URL != nil && req.Header != nil && req.Method != http.MethodConnect &&
		(req.URL.Scheme == "http" || req.URL.Scheme == "https")
}

type callContext struct{}

// Attempts returns how often [Transport] has sent the request that resp answers; after a
// redirect, the request that followed it. It is 0 if resp is not from Transport. Reading
// the body of resp can add to it, so do not call both at the same time.
func Attempts(resp *http.Response) int {
	if resp == nil || resp.Request == nil {
		return 0
	}
	c, ok := resp.Request.Context().Value(callContext{}).(*call)
	if !ok {
		return 0
	}
	return c.sent
}

// call is one request, with all its attempts.
type call struct {
	*transport
	shown   *http.Request // the request that the caller and the hook see
	wire    http.Header   // the headers that the base sends
	keyed   bool
	body    body
	began   time.Time
	sent    int           // attempts so far
	waits   int           // attempts that [WithAttempts] does not count
	attempt http.Request  // the first attempt's request
	answer  resumableBody // the body of the response, if it can be resumed
}

var errNothing = errors.New("client: the base transport returned neither a response nor an error")

// run makes attempts until the outcome is final. The first attempt sends body.
func (c *call) run(body io.ReadCloser) (*http.Response, error) {
	for {
		attempt := &c.attempt
		if c.sent++; c.sent > 1 {
			attempt = new(http.Request) // the base may still be reading the previous attempt
		}
		*attempt = *c.shown
		attempt.Header, attempt.Body = c.wire, body
		if c.keyed {
			attempt.GetBody = nil // with it, net/http would send the request again by itself
		}
		resp, err := c.base.RoundTrip(attempt)
		if resp == nil && err == nil {
			err = errNothing
		}
		v, broken := c.judgeAttempt(resp, err)
		next, again, ended := c.repeat(v, resp, broken)
		switch {
		case ended != nil:
			return nil, ended
		case !again:
			return resp, err
		}
		body = next
	}
}
