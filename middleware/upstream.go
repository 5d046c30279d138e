package middleware

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"mime"
	"net/http"
	"net/http/httptrace"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"

	"github.com/httplatch/httplatch/middleware/internal/record"
)

// Upstream returns a round tripper for a handler behind [Idempotent] or [Dedupe] whose
// effect happens in another service: the Transport of an
// [net/http/httputil.ReverseProxy], or of a client. It sends requests through base,
// [http.DefaultTransport] if that is nil, and the guard remembers that they were sent:
// once a request may have left, a lost answer does not free the key. A client must send
// with the context of the handler's request.
//
// A call has one of three outcomes:
//
//	no connection was made                                no effect
//	the answer is 400 to 501, or 505 to 511               no effect
//	it is 503 with Retry-After                            no effect
//	it is 502, 504, 512 to 599, or 503 without that       unknown: a gateway further on may have lost its answer
//	it is lost, late, or cut off                          unknown
//	it is below 400                                       an effect
//
// If all calls of a handler had no effect, its failure frees the key, as without
// Upstream. If not, a failure (an answer that the guard does not keep, see [WithFinal],
// or a panic) does not: repeats get 409 (outcome-unknown), until the key expires or an
// operator frees it. An answer that the guard keeps is kept, whatever the outcomes of the
// calls.
//
// An answer of no more than the second limit of [WithBodyLimits] is read to its end
// before RoundTrip returns it, with its length, so that it can be kept although a proxy
// flushes it; and an answer that is cut off is an error, not half an answer. Streams are
// not read, and not kept if they are flushed: text/event-stream, gRPC, and answers with
// X-Accel-Buffering: no. The same holds for answers over HTTP/1 that end with their
// connection, because they do not show whether they are whole.
//
// Headers of a request that begin with Latch- or Latch_ are not sent, and the Latch-Commit of an
// answer is not returned, nor one in a trailer or in an informational answer, so neither a
// client nor a service behind it can speak in the name of the other: see [WithUpstreamHeaders].
//
// With [lock.WithRerunAbandoned] and [lock.WithTransaction], the store notes the request
// before it is sent, which costs a round trip. RoundTrip returns an error and has sent
// nothing if the store does not note it, if the lease is lost, or if the handler has
// returned and its key is free.
//
// Other than that, requests of a safe method (GET, HEAD, OPTIONS, TRACE) go to base unchanged,
// and so do requests outside of Idempotent and Dedupe, under [Lock] alone for example, with one
// exception. When a connection breaks, net/http sends a request with an Idempotency-Key again
// if it has no body, or a GetBody. To prevent this, base gets the name of that header in
// lower case, which is the same to a server. So base must not look for the key.
//
// base must not repeat requests by itself, and should call the hooks of package
// [net/http/httptrace], as [http.Transport] and its wrappers do: without them, a failure
// before there is a connection is unknown, too. Upstream is safe for concurrent use if
// base is. It panics on a nil option.
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
	if safe(cmp.Or(r.Method, http.MethodGet)) {
		answer, _, err := u.send(r)
		return answer, err
	}
	sender := runOf(r.Context())
	if sender == nil {
		return u.underLock(r)
	}
	if err := sender.sending(r.Context()); err != nil {
		if r.Body != nil {
			_ = r.Body.Close()
		}
		return nil, fmt.Errorf("middleware: a request to another service was not sent: %w", err)
	}
	var dial connecting
	answer, says, err := u.send(u.prepared(httptrace.WithClientTrace(r.Context(), dial.trace()), r))
	if err == nil {
		err = readWhole(answer, sender.answer.Limit())
	}
	switch {
	case err != nil && dial.failed():
		sender.notSent()
		return nil, err
	case err != nil:
		holdUnknown(r.Context())
		return nil, err
	case says.noEffect(answer):
		sender.notSent()
	case says.isUnknown(answer):
		holdUnknown(r.Context())
	default:
		says.commit(r.Context())
	}
	return answer, nil
}

// underLock sends r outside of Idempotent and Dedupe.
func (u *upstream) underLock(r *http.Request) (*http.Response, error) {
	if lockedOf(r.Context()) == nil {
		answer, _, err := u.send(u.prepared(r.Context(), r))
		return answer, err
	}
	var dial connecting
	answer, says, err := u.send(u.prepared(httptrace.WithClientTrace(r.Context(), dial.trace()), r))
	if err != nil && !dial.failed() || err == nil && says.isUnknown(answer) {
		holdUnknown(r.Context())
	}
	return answer, err
}

// holdUnknown notes, in the locks around ctx, that a service may still be at work.
func holdUnknown(ctx context.Context) {
	for c := lockedOf(ctx); c != nil; c = lockedOf(c.Context) {
		c.unknown.Store(true)
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

// sending notes that a request is about to leave, in the run and in the runs of the guards
// around it. Without the note, each of these guards would free its key after a failure.
func (r *handlerRun) sending(ctx context.Context) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return r.doubt(ctx)
}

// doubt notes an effect that may happen, in the run and in the runs of the guards around it.
func (r *handlerRun) doubt(ctx context.Context) error {
	for at := r; at != nil; at = at.outer {
		if err := at.Doubt(ctx, record.Unknown()); err != nil {
			for noted := r; noted != at; noted = noted.outer {
				noted.Dispel()
			}
			return err
		}
	}
	return nil
}

// notSent takes back one sending: the request certainly had no effect.
func (r *handlerRun) notSent() {
	for at := r; at != nil; at = at.outer {
		at.Dispel()
	}
}

// connecting is the progress of a request on its way to a connection.
type connecting struct{ asked, got atomic.Bool }

func (c *connecting) trace() *httptrace.ClientTrace {
	return &httptrace.ClientTrace{
		GetConn: func(string) { c.asked.Store(true) },
		GotConn: func(httptrace.GotConnInfo) { c.got.Store(true) },
	}
}

// failed reports whether there was no connection to write to. A base without hooks may
// have written.
func (c *connecting) failed() bool { return c.asked.Load() && !c.got.Load() }

// noEffect reports whether the answer says that the request had no effect.
func (c commitment) noEffect(answer *http.Response) bool {
	return c == notCommitted || c == unsaid && saysNoEffect(answer)
}

// isUnknown reports whether the answer says that a gateway further on has lost another one.
func (c commitment) isUnknown(answer *http.Response) bool {
	return c == unsaid && answer.StatusCode >= 400 && !saysNoEffect(answer)
}

// saysNoEffect reports whether the status says that the request had no effect. A gateway
// that answers for itself has lost an answer.
func saysNoEffect(answer *http.Response) bool {
	switch status := answer.StatusCode; status {
	case http.StatusBadGateway, http.StatusGatewayTimeout:
		return false
	case http.StatusServiceUnavailable:
		return answer.Header.Get("Retry-After") != ""
	default:
		return status >= 400 && status <= http.StatusNetworkAuthenticationRequired
	}
}

// readWhole reads the body of an answer that is no stream, and is no longer than limit.
// It fails if the body is cut off.
func readWhole(answer *http.Response, limit int64) error {
	if answer.Body == nil || answer.ContentLength > limit || streams(answer) {
		return nil
	}
	body, err := io.ReadAll(io.LimitReader(answer.Body, limit+1))
	if err != nil {
		return errors.Join(fmt.Errorf("middleware: the answer of another service was cut off: %w", err), answer.Body.Close())
	}
	if int64(len(body)) > limit {
		answer.Body = &begun{io.MultiReader(bytes.NewReader(body), answer.Body), answer.Body}
		return nil
	}
	_ = answer.Body.Close()
	answer.Body = io.NopCloser(bytes.NewReader(body))
	if answer.ContentLength < 0 && len(answer.Trailer) == 0 { // only a body without a length can have trailers
		answer.ContentLength, answer.TransferEncoding = int64(len(body)), nil
		if answer.Header == nil {
			answer.Header = make(http.Header)
		}
		answer.Header.Set("Content-Length", strconv.Itoa(len(body)))
	}
	return nil
}

// begun is a body that was read in part.
type begun struct {
	io.Reader
	io.Closer
}

// streams reports whether the end of the answer may be far, or cannot be distinguished from a
// broken connection.
func streams(answer *http.Response) bool {
	media, _, _ := mime.ParseMediaType(answer.Header.Get("Content-Type"))
	return answer.StatusCode == http.StatusSwitchingProtocols ||
		media == "text/event-stream" || strings.HasPrefix(media, "application/grpc") ||
		strings.EqualFold(answer.Header.Get("X-Accel-Buffering"), "no") ||
		answer.ProtoMajor == 1 && answer.ContentLength < 0 && !answer.Uncompressed && !slices.Contains(answer.TransferEncoding, "chunked")
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
