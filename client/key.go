package client

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/http"
	"net/url"
	"strings"

	"github.com/httplatch/httplatch/internal/httpmethod"
	"github.com/httplatch/httplatch/internal/submission"
)

const (
	keyHeader  = "Idempotency-Key"
	xKeyHeader = "X-Idempotency-Key" // net/http treats both names alike

	hiddenKeyHeader  = "idempotency-key" // net/http does not look for the key under this spelling
	hiddenXKeyHeader = "x-idempotency-key"
)

const maxKey = 255

var errKey = finalError{errors.New("client: a key has 1 to 255 printable ASCII characters, none of them a blank or one of \"\\,;()")}

var errNoKey = errors.New("client: the request was not sent: it comes from a guarded handler, which may run again, and its key would be another one then; name the call with client.Step, or give it a key with client.WithKey")

// finalError is the error of a request that [CheckRetry] must not repeat: it was not sent, and a repeat
// would fail in the same way, or it had no key.
type finalError struct{ error }

func (e finalError) Unwrap() error { return e.error }

// Timeout is called by [url.Error.Timeout].
func (e finalError) Timeout() bool {
	failed, ok := errors.AsType[net.Error](e.error)
	return ok && failed.Timeout()
}

// givenKey is the intent of WithKey.
type givenKey string

// WithKey returns a context whose requests [Transport] sends with key, and for which
// [CheckRetry] may repeat a request. One key stands for one intent: use the context for
// one request, and for the same request after a restart or a second click. A server refuses
// any other request with the key, with key-reused.
//
// A key has 1 to 255 printable ASCII characters, none of them a blank or one of "\,;(). A
// request with another key fails, and nothing is sent. With "" the request is sent without
// a key, and repeated only if its method allows it. If the request has its own Idempotency-Key
// header, that header is used.
func WithKey(ctx context.Context, key string) context.Context {
	return context.WithValue(ctx, submission.IntentKey{}, givenKey(key))
}

// Step returns a context whose request [Transport] sends with a key that is derived from the
// submission that the handler of ctx serves, and from name:
//
//	req, err := http.NewRequestWithContext(client.Step(r.Context(), "charge"), http.MethodPost, url, body)
//
// The key is the one of middleware.DeriveKey: the same whenever the handler runs again for
// its submission. So a service that runs each key once has one effect, however often the
// handler fails and its client repeats. A name stands for one call of the handler, and must
// not be empty. In a loop, put the item into the name: "refund/7". Method, URL and body of the
// call must be the same in each run.
//
// The guard has to be middleware.Idempotent with WithKeySecret. Under middleware.Dedupe, or an
// Idempotent without WithKeySecret, the request fails, and nothing is sent. Without such a guard
// around ctx, as in a worker or in a request that middleware lets pass unguarded, Step has no
// effect. If both Step and [WithKey] are used, the last call counts.
func Step(ctx context.Context, name string) context.Context {
	return submission.WithStep(ctx, name)
}

// keyOf returns the key of the requests of ctx. ok is false if they need a new one.
func keyOf(ctx context.Context) (key string, ok bool, err error) {
	intent := ctx.Value(submission.IntentKey{})
	if given, is := intent.(givenKey); is {
		return string(given), true, nil
	}
	serves := submission.Of(ctx)
	if serves == nil {
		return "", false, nil
	}
	step, is := intent.(submission.StepName)
	if !is {
		return "", false, finalError{errNoKey}
	}
	key, err = serves.Derive(string(step))
	if err != nil {
		return "", false, finalError{fmt.Errorf("client: the request of the step %q was not sent: %w", string(step), err)}
	}
	return key, true, nil
}

// safe reports whether a request with this method asks for no effect.
func safe(method string) bool { return method == "" || httpmethod.Safe(method) }

// idempotent reports whether a request with this method may be repeated without a key
// (RFC 9110, section 9.2.2).
func idempotent(method string) bool {
	return safe(method) || method == http.MethodPut || method == http.MethodDelete
}

// headerOf returns the header with which req is sent, and whether it has a key. It does not
// change the header of req.
func (t *transport) headerOf(req *http.Request) (h http.Header, keyed bool, err error) {
	switch {
	case redirectedAway(req):
		h = req.Header.Clone()
		for _, name := range [...]string{keyHeader, xKeyHeader, hiddenKeyHeader, hiddenXKeyHeader} {
			delete(h, name)
		}
		return h, false, nil
	case safe(req.Method):
		return req.Header, false, nil
	case req.Header.Get(keyHeader) != "":
		return req.Header, true, nil
	}
	if hidden := map[string][]string(req.Header)[hiddenKeyHeader]; len(hidden) > 0 {
		// The caller is another transport of this package.
		h = withHeader(req.Header, keyHeader, hidden[0])
		delete(h, hiddenKeyHeader)
		return h, true, nil
	}
	key, err := t.chooseKey(req)
	if err != nil || key == "" {
		return req.Header, false, err
	}
	if t.quoted && key[0] != '"' { // the key of a redirect has its quotes already
		key = `"` + key + `"`
	}
	return withHeader(req.Header, keyHeader, key), true, nil
}

// chooseKey returns the key of a request without one.
func (t *transport) chooseKey(req *http.Request) (string, error) {
	if req.Response != nil && req.Response.Request != nil {
		// A redirect within the origin: the request is the same.
		if key := req.Response.Request.Header.Get(keyHeader); key != "" {
			return key, nil
		}
	}
	key, ok, err := keyOf(req.Context())
	if err != nil {
		return "", err
	}
	if !ok {
		key = t.newKey(req)
	}
	if key != "" && !validKey(key) {
		return "", errKey
	}
	return key, nil
}

func validKey(key string) bool {
	for i := range len(key) {
		if c := key[i]; c <= ' ' || c >= 0x7f || strings.IndexByte(`"\,;()`, c) >= 0 {
			return false
		}
	}
	return key != "" && len(key) <= maxKey
}

// redirectedAway reports whether the request follows a redirect, and an earlier request of the same
// chain of redirects had another origin.
func redirectedAway(req *http.Request) bool {
	for from := req.Response; from != nil && from.Request != nil; from = from.Request.Response {
		if !sameOrigin(from.Request.URL, req.URL) {
			return true
		}
	}
	return false
}

// sameOrigin compares whole URLs, of which only one may name the default port of its scheme.
func sameOrigin(a, b *url.URL) bool {
	return strings.EqualFold(a.Scheme, b.Scheme) && strings.EqualFold(a.Hostname(), b.Hostname()) && port(a) == port(b)
}

func port(u *url.URL) string {
	switch p := u.Port(); {
	case p != "":
		return p
	case strings.EqualFold(u.Scheme, "https"):
		return "443"
	default:
		return "80"
	}
}

// withHeader returns a copy of h with one more header. The values of the others are
// shared.
func withHeader(h http.Header, name, value string) http.Header {
	more := make(http.Header, len(h)+1)
	maps.Copy(more, h)
	more[name] = []string{value}
	return more
}

// hideKey returns a copy of h in which net/http does not find the key, because the name of the
// header is in lower case. Servers find it: the case of header names has no meaning.
func hideKey(h http.Header) http.Header {
	hidden := make(http.Header, len(h))
	for n, v := range h {
		switch n {
		case keyHeader:
			n = hiddenKeyHeader
		case xKeyHeader:
			n = hiddenXKeyHeader
		}
		hidden[n] = v
	}
	return hidden
}
