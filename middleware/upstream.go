package middleware

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptrace"
	"strconv"
	"strings"
	"sync/atomic"

	"github.com/httplatch/httplatch/internal/httpmethod"
	"github.com/httplatch/httplatch/lock"
	"github.com/httplatch/httplatch/middleware/internal/record"
)

// Upstream returns a round tripper for a handler behind [Idempotent] or [Dedupe] whose effect
// happens in another service. Use it as the Transport of a [net/http/httputil.ReverseProxy], or of
// a client, which must send with the context of the handler's request. It sends requests through
// base, or [http.DefaultTransport] if base is nil, and the guard records that they were sent. As
// soon as a request may have been sent, a lost answer does not free the key.
//
// A call has one of three outcomes:
//
//	no connection was made, or the stream was refused     no effect
//	the answer is 400 to 501 except 499, or 505 to 511    no effect
//	the answer is 503 with Retry-After                    no effect
//	it is 503 without Retry-After, 502, 504, 512 to 599   unknown: a gateway further on may have lost the answer
//	the answer is 499                                     unknown: the service may have stopped in the middle
//	the answer is lost, late, or cut off                  unknown
//	the answer is below 400                               an effect
//
// If all calls of a handler had no effect, its failure frees the key, as without Upstream.
// Otherwise, a failure (an answer that the guard does not keep, see [WithFinal], or a panic) does
// not free the key: repeats get 409 (outcome-unknown), until the key expires or an operator frees
// it. If the guard keeps the answer of the handler, repeats get that answer, whatever the
// outcomes of the calls.
//
// An answer up to the second limit of [WithBodyLimits] is read to its end before RoundTrip
// returns it, with its length. So it can be kept although a proxy flushes it, and an answer that
// is cut off is an error, and not half an answer. Streams are not read: text/event-stream, gRPC,
// streaming calls of Connect, and answers with X-Accel-Buffering: no. The same holds for answers over HTTP/1
// that end with their connection, which are not kept if they are flushed, because they do not show whether
// they are whole.
//
// Headers of a request that begin with Latch- or Latch_ are not sent, and Latch-Commit is removed
// from answers. So a client cannot pretend to be the gateway, and a service cannot answer a client
// with such a header: see [WithUpstreamHeaders]. As a trailer, or in an informational answer, it says
// nothing, and passes like any other.
//
// With [lock.WithRerunAbandoned] and [lock.WithTransaction], the store notes the request
// before it is sent, which costs a round trip. RoundTrip returns an error and has sent
// nothing if the store does not note it, if the lease is lost, or if the handler has
// returned and its key is free.
//
// Apart from these headers, requests of a safe method, such as GET, and requests
// outside of Idempotent and Dedupe, such as under [Lock] alone, go to base unchanged, with one
// exception. When a connection breaks, net/http repeats a request with an Idempotency-Key if it
// has no body, or a GetBody. To prevent this, base gets the name of that header in lower case,
// which makes no difference to servers. So base must not look for the key.
//
// base must not repeat requests by itself. [http.Transport] of Go 1.26 still does so over HTTP/2, if the
// stream of a request that has no body, or a GetBody, ends with PROTOCOL_ERROR. Go 1.27 does not.
//
// base should call the hooks of package [net/http/httptrace], as http.Transport and its wrappers do.
// Without these hooks, the outcome is unknown even if no connection could be made. Upstream is safe for
// concurrent use if base is. It panics on a nil option.
func Upstream(base http.RoundTripper, opts ...UpstreamOption) http.RoundTripper {
	if base == nil {
		base = http.DefaultTransport
	}
	u := &upstream{base: base}
	applyAll("Upstream", u, opts, UpstreamOption.applyUpstream)
	return u
}

type upstream struct {
	base    http.RoundTripper
	headers bool // Latch-Key and Latch-Attempt are sent, and Latch-Commit is read
}

// CloseIdleConnections is called by [http.Client.CloseIdleConnections].
func (u *upstream) CloseIdleConnections() {
	if c, ok := u.base.(interface{ CloseIdleConnections() }); ok {
		c.CloseIdleConnections()
	}
}

func (u *upstream) RoundTrip(r *http.Request) (*http.Response, error) {
	r = withoutLatch(r)
	if httpmethod.Safe(cmp.Or(r.Method, http.MethodGet)) {
		answer, err := u.base.RoundTrip(r)
		if err == nil {
			delete(answer.Header, commitHeader)
		}
		return answer, err //nolint:wrapcheck // of base
	}
	ctx, notSent := r.Context(), func() {}
	sender := runOf(ctx)
	if sender != nil {
		err := context.Cause(ctx)
		if err == nil {
			notSent, err = sender.noteInEachRun(ctx)
		}
		if err != nil {
			if r.Body != nil {
				_ = r.Body.Close()
			}
			return nil, fmt.Errorf("middleware: a request to another service was not sent: %w", err)
		}
	}
	var asked, got atomic.Bool // for a connection
	answer, err := u.base.RoundTrip(u.prepared(httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{
		GetConn: func(string) { asked.Store(true) },
		GotConn: func(httptrace.GotConnInfo) { got.Store(true) },
	}), r))
	// A base that does not call the hooks may have written the request.
	unprocessed := err != nil && (asked.Load() && !got.Load() || refusesStream(err))
	if err == nil && sender != nil {
		err = readWhole(answer, sender.guard.answers.Limit)
	}
	if ended := context.Cause(ctx); err != nil && errors.Is(ended, lock.ErrLost) {
		err = ended // over HTTP/2 it is context.Canceled, as of a client that has left
	}
	switch {
	case unprocessed:
		notSent()
		return nil, err
	case err != nil:
		holdUnknown(ctx)
		return nil, err
	}
	switch u.commitmentOf(answer) {
	case notCommitted:
		notSent()
	case uncertain:
		holdUnknown(ctx)
	case committed:
		if sender != nil {
			_ = lock.Commit(ctx) // if this fails, the outcome of the request stays unknown
		}
	case unsaid:
	}
	if sender != nil {
		sender.watch(answer)
	}
	return answer, nil
}

// holdUnknown notes, in the locks around ctx, that a service may still be working.
func holdUnknown(ctx context.Context) {
	for x := requestOf(ctx); x != nil; x = x.outer {
		x.unknown.Store(true)
	}
}

// prepared returns r with ctx, as the upstream gets it, spelled so that net/http sends it once: the
// headers that allow a repeat have names in lower case, where net/http does not look. net/http still
// repeats a request of which it has written no byte.
func (u *upstream) prepared(ctx context.Context, r *http.Request) *http.Request {
	r = r.WithContext(ctx)
	if r.Header = maps.Clone(r.Header); r.Header == nil {
		r.Header = make(http.Header)
	}
	for _, name := range []string{"Idempotency-Key", "X-Idempotency-Key"} {
		if values, has := r.Header[name]; has {
			delete(r.Header, name)
			r.Header[strings.ToLower(name)] = values
		}
	}
	if !u.headers {
		return r
	}
	if key, ok := Key(ctx); ok {
		r.Header[keyHeader] = []string{key}
	}
	if n := lock.Attempt(ctx); n > 0 {
		r.Header[attemptHeader] = []string{strconv.Itoa(n)}
	}
	return r
}

// noteInEachRun notes an effect that may happen, in x and in the runs of the guards around it, which would
// free their keys after a failure. none takes the notes back: there was certainly no effect.
func (x *run) noteInEachRun(ctx context.Context) (none func(), err error) {
	var notes []func()
	none = func() {
		for _, takeBack := range notes {
			takeBack()
		}
	}
	for o := &x.request; o != nil; o = o.outer {
		if o.run == nil {
			continue
		}
		takeBack, err := o.run.NotePossibleEffect(ctx, record.Unknown())
		if err != nil {
			none()
			return nil, err
		}
		notes = append(notes, takeBack)
	}
	return none, nil
}

// refusesStream reports whether the upstream has refused the stream of a request over HTTP/2, as a server that shuts down
// does, and has not processed it (RFC 9113, section 8.7). net/http exports neither error.
func refusesStream(err error) bool {
	text := err.Error()
	return strings.Contains(text, "REFUSED_STREAM") || strings.Contains(text, "Server's graceful shutdown GOAWAY")
}
