package middleware

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptrace"
	"strings"
	"sync/atomic"

	"github.com/httplatch/httplatch/internal/httpmethod"
	"github.com/httplatch/httplatch/middleware/internal/record"
	"github.com/httplatch/httplatch/middleware/internal/recorder"
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
// from answers, trailers and informational answers. So a client cannot pretend to be the gateway,
// and a service cannot answer a client with such a header: see [WithUpstreamHeaders].
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
	for _, o := range opts {
		if o == nil {
			panic("middleware.Upstream: nil option")
		}
		o.applyUpstream(u)
	}
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
		answer, _, err := u.send(r)
		return answer, err
	}
	sender := runOf(r.Context())
	if sender == nil {
		return u.underLock(r)
	}
	err := context.Cause(r.Context())
	var notSent func()
	if err == nil {
		notSent, err = sender.noteInEachRun(r.Context())
	}
	if err != nil {
		if r.Body != nil {
			_ = r.Body.Close()
		}
		return nil, fmt.Errorf("middleware: a request to another service was not sent: %w", err)
	}
	var dial connecting
	answer, says, err := u.send(u.prepared(httptrace.WithClientTrace(r.Context(), dial.trace()), r))
	unprocessed := err != nil && (dial.failed() || refusesStream(err))
	if err == nil {
		err = readWhole(answer, sender.answer.Limit())
	}
	switch {
	case unprocessed:
		notSent()
		return nil, err
	case err != nil:
		holdUnknown(r.Context())
		return nil, err
	case says.noEffect(answer):
		notSent()
	case says.isUnknown(answer):
		holdUnknown(r.Context())
	default:
		says.commit(r.Context())
	}
	sender.watch(answer)
	return answer, nil
}

// underLock sends r outside of Idempotent and Dedupe.
func (u *upstream) underLock(r *http.Request) (*http.Response, error) {
	if guardedOf(r.Context()) == nil {
		answer, _, err := u.send(u.prepared(r.Context(), r))
		return answer, err
	}
	var dial connecting
	answer, says, err := u.send(u.prepared(httptrace.WithClientTrace(r.Context(), dial.trace()), r))
	if err != nil && !dial.failed() && !refusesStream(err) || err == nil && says.isUnknown(answer) {
		holdUnknown(r.Context())
	}
	return answer, err
}

// holdUnknown notes, in the locks around ctx, that a service may still be working.
func holdUnknown(ctx context.Context) {
	for x := guardedOf(ctx); x != nil; x = x.outer {
		x.unknown.Store(true)
	}
}

// send sends r as it is, and takes from its answer the header that is for the gateway alone.
func (u *upstream) send(r *http.Request) (*http.Response, commitment, error) {
	answer, err := u.base.RoundTrip(withoutEarly(r))
	if err != nil {
		return nil, unsaid, err
	}
	says := takeCommitment(answer)
	if !u.headers {
		says = unsaid
	}
	return answer, says, nil
}

// prepared returns r with ctx, as the upstream gets it.
func (u *upstream) prepared(ctx context.Context, r *http.Request) *http.Request {
	r = unrepeated(ctx, r)
	if u.headers {
		r.Header = maps.Clone(r.Header)
		if r.Header == nil {
			r.Header = make(http.Header)
		}
		announce(r)
	}
	return r
}

// noteInEachRun notes an effect that may happen, in x and in the runs of the guards around it: without
// the note, each of these guards would free its key after a failure. none takes the notes back: there
// was certainly no effect.
func (x *run) noteInEachRun(ctx context.Context) (none func(), err error) {
	var notes []func()
	none = func() {
		for _, takeBack := range notes {
			takeBack()
		}
	}
	for o := &x.guarded; o != nil; o = o.outer {
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

// connecting is the progress of a request on its way to a connection.
type connecting struct{ asked, got atomic.Bool }

func (c *connecting) trace() *httptrace.ClientTrace {
	return &httptrace.ClientTrace{
		GetConn: func(string) { c.asked.Store(true) },
		GotConn: func(httptrace.GotConnInfo) { c.got.Store(true) },
	}
}

// failed reports whether there was no connection to write to. It is false for a base that does not
// call the hooks, which may have written the request.
func (c *connecting) failed() bool { return c.asked.Load() && !c.got.Load() }

// refusesStream reports whether the upstream has refused the stream of a request over HTTP/2, as a server that shuts down
// does, and has not processed it (RFC 9113, section 8.7). net/http exports neither error.
func refusesStream(err error) bool {
	text := err.Error()
	return strings.Contains(text, "REFUSED_STREAM") || strings.Contains(text, "Server's graceful shutdown GOAWAY")
}

// noEffect reports whether the answer says that the request had no effect.
func (c commitment) noEffect(answer *http.Response) bool {
	return c == notCommitted || c == unsaid && saysNoEffect(answer)
}

// isUnknown reports whether the answer says that a gateway further on has lost the answer of the
// service.
func (c commitment) isUnknown(answer *http.Response) bool {
	return c == unsaid && answer.StatusCode >= 400 && !saysNoEffect(answer)
}

// saysNoEffect reports whether the status says that the request had no effect. A 502 or 504 comes
// from a gateway that may have lost the answer of the service, and a 499 from a service that has
// stopped in the middle.
func saysNoEffect(answer *http.Response) bool {
	switch status := answer.StatusCode; status {
	case http.StatusBadGateway, http.StatusGatewayTimeout, recorder.StatusClientGone:
		return false
	case http.StatusServiceUnavailable:
		return answer.Header.Get("Retry-After") != ""
	default:
		return status >= 400 && status <= http.StatusNetworkAuthenticationRequired
	}
}

// unrepeated returns r with ctx, spelled so that net/http sends it once: the headers that allow a
// repeat have names in lower case, where net/http does not look. net/http still repeats a
// request of which it has written no byte.
func unrepeated(ctx context.Context, r *http.Request) *http.Request {
	r = r.WithContext(ctx)
	for _, name := range []string{"Idempotency-Key", "X-Idempotency-Key"} {
		if values, has := r.Header[name]; has {
			r.Header = maps.Clone(r.Header)
			delete(r.Header, name)
			r.Header[strings.ToLower(name)] = values
		}
	}
	return r
}
