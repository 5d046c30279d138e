package middleware

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"math"
	"mime"
	"net/http"
	"net/http/httptrace"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"

	"github.com/httplatch/httplatch/internal/httpmethod"
	"github.com/httplatch/httplatch/lock"
	"github.com/httplatch/httplatch/middleware/internal/record"
)

// Upstream returns a round tripper for a handler behind [Idempotent] or [Dedupe] whose effect happens in another
// service. Use it as the Transport of a [net/http/httputil.ReverseProxy], or of a client, which must send with the
// context of the handler's request. It sends requests through base, or [http.DefaultTransport] if base is nil. As
// soon as a request may have been sent, a lost answer does not free the key. A call has one of three outcomes:
//
//	no connection was made, or the stream was refused     no effect
//	the answer is 400 to 501 except 499, or 505 to 511    no effect
//	the answer is 503 with Retry-After                    no effect
//	another answer of 400 or above                        unknown: it may come from a gateway further on
//	the answer is lost, late, or cut off                  unknown
//	the answer is below 400                               an effect
//
// If all calls of a handler had no effect, its failure frees the key, as without Upstream. Otherwise, a failure (an
// answer that the guard does not keep, see [WithFinal], or a panic) does not free the key: repeats get 409
// (outcome-unknown), until the key expires or an operator frees it. An answer of the handler that the guard keeps is
// kept, whatever the outcomes of the calls.
//
// An answer up to the second limit of [WithBodyLimits] is read to its end before RoundTrip returns it, with its
// length. So it can be kept although a proxy flushes it, and an answer that is cut off is an error. Streams are not
// read: docs/gateway.md says which answers are.
//
// Headers of a request that begin with Latch- or Latch_ are not sent, and Latch-Commit is removed from answers, so
// that neither side can pretend to be the gateway: see [WithUpstreamHeaders]. As a trailer, or in an informational
// answer, it passes like any other.
//
// With [lock.WithRerunAbandoned] and [lock.WithTransaction], the store notes the request before it is sent, which
// costs a round trip. RoundTrip returns an error and has sent nothing if the store does not note it, if the lease is
// lost, or if the handler has returned and its key is free.
//
// Requests of a safe method, and requests outside of Idempotent and Dedupe, such as under [Lock] alone, go to base
// unchanged, except for these headers. For all others, net/http would repeat a request with an Idempotency-Key when a
// connection breaks. To prevent this, base gets the name of that header in lower case, which makes no difference to
// servers. So base must not look for the key, and must not repeat requests by itself. [http.Transport] of Go 1.26
// still does so over HTTP/2, if the stream of a request that has no body, or a GetBody, ends with PROTOCOL_ERROR.
// base should call the hooks of package [net/http/httptrace], as http.Transport and its wrappers do: without them,
// the outcome is unknown even if no connection could be made.
//
// Upstream is safe for concurrent use if base is. It panics on a nil option.
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

// CloseIdleConnections is for [http.Client].
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
	switch said := u.commitOf(answer); {
	case said == "yes":
		if sender != nil {
			_ = lock.Commit(ctx) // if this fails, the outcome of the request stays unknown
		}
	case said == "no":
		notSent()
	case answer.StatusCode < http.StatusBadRequest:
	case mayHideEffect(answer):
		holdUnknown(ctx)
	default:
		notSent()
	}
	if sender != nil {
		sender.watch(answer)
	}
	return answer, nil
}

// holdUnknown notes, in the locks around ctx, that a service may still be at work.
func holdUnknown(ctx context.Context) {
	for x := requestOf(ctx); x != nil; x = x.outer {
		x.unknown.Store(true)
	}
}

// prepared returns r with ctx, as the upstream gets it. The headers that allow net/http a repeat have names in lower
// case, where it does not look. net/http still repeats a request without a written byte.
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

// noteInEachRun notes an effect that may happen, in x and in the runs around it. none takes the notes back.
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
		takeBack, err := o.run.NotePossibleEffect(ctx, []byte(record.Unknown))
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

const (
	attemptHeader = "Latch-Attempt"
	keyHeader     = "Latch-Key"
	commitHeader  = "Latch-Commit"
)

// UpstreamOption configures [Upstream]: [WithUpstreamHeaders].
type UpstreamOption interface{ applyUpstream(u *upstream) }

type upstreamHeaders struct{}

func (upstreamHeaders) applyUpstream(u *upstream) { u.headers = true }

// WithUpstreamHeaders sets headers with which a gateway and its upstream, in any language, inform each other about a
// request under [Idempotent] or [Dedupe]. Without it, these headers are neither sent nor read:
//
//	Latch-Key: ...       to the upstream: the identity of the submission, [Key], if there is one
//	Latch-Attempt: 1     to the upstream: [lock.Attempt], more than 1 after a crash of the gateway
//	Latch-Commit: yes    from the upstream: the effect has happened
//	Latch-Commit: no     from the upstream: there was no effect
//
// A whole answer with yes is kept, whatever its status, as after [lock.Commit]. After an answer with no, a repeat is
// sent, unless the guard keeps the answer. Any other value is ignored. The value is trusted, so the upstream must
// send no only if its work was rolled back.
//
// The option is for the Transport of a proxy, which sends each request on once. If a handler makes several calls, all
// of them would have the same Latch-Key.
func WithUpstreamHeaders() UpstreamOption { return upstreamHeaders{} }

// commitOf removes the Latch-Commit of an answer, and returns it in small letters, "" if it does not count.
func (u *upstream) commitOf(answer *http.Response) string {
	values := answer.Header[commitHeader]
	delete(answer.Header, commitHeader)
	if !u.headers || len(values) != 1 { // more than one may come from two services
		return ""
	}
	return strings.ToLower(values[0])
}

// mayHideEffect reports whether a failure comes from a gateway that may have lost the answer of the service, or, with
// 499, from a service that has stopped in the middle.
func mayHideEffect(answer *http.Response) bool {
	switch status := answer.StatusCode; status {
	case http.StatusBadGateway, http.StatusGatewayTimeout, record.StatusClientGone:
		return true
	case http.StatusServiceUnavailable:
		return answer.Header.Get("Retry-After") == ""
	default:
		return status > http.StatusNetworkAuthenticationRequired
	}
}

// withoutLatch returns r without the headers that only a gateway may set. CGI makes one name of Latch-Key and
// Latch_Key.
func withoutLatch(r *http.Request) *http.Request {
	const prefix = "latch-"
	sent := maps.Clone(r.Header)
	maps.DeleteFunc(sent, func(name string, _ []string) bool {
		return len(name) >= len(prefix) && strings.EqualFold(strings.ReplaceAll(name[:len(prefix)], "_", "-"), prefix)
	})
	if len(sent) < len(r.Header) {
		r = r.WithContext(r.Context())
		r.Header = sent
	}
	return r
}

// readWhole reads the body of an answer into memory, unless it is a stream, or longer than limit. It fails if the
// body is cut off.
func readWhole(answer *http.Response, limit int64) error {
	if answer.Body == nil || answer.ContentLength > limit || streams(answer) {
		return nil
	}
	body, err := io.ReadAll(io.LimitReader(answer.Body, min(limit, math.MaxInt64-1)+1))
	if err != nil {
		return errors.Join(fmt.Errorf("middleware: the answer of another service was cut off: %w", err), answer.Body.Close())
	}
	if int64(len(body)) > limit {
		answer.Body = struct {
			io.Reader
			io.Closer
		}{io.MultiReader(bytes.NewReader(body), answer.Body), answer.Body}
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

// watch notes, in x and the guards around it, if a stream that is passed on is cut off, or may be.
func (x *run) watch(answer *http.Response) {
	switch {
	case answer.StatusCode == http.StatusSwitchingProtocols || answer.Body == nil || !streams(answer):
	case endsWithConnection(answer):
		x.markCutOff()
	default:
		answer.Body = &watched{answer.Body, x}
	}
}

type watched struct {
	io.ReadCloser
	run *run
}

func (w *watched) Read(p []byte) (int, error) {
	n, err := w.ReadCloser.Read(p)
	if err != nil && !errors.Is(err, io.EOF) {
		w.run.markCutOff()
	}
	return n, err
}

// streams reports whether the answer may go on for long, or its end looks like a broken connection.
func streams(answer *http.Response) bool {
	media, _, _ := mime.ParseMediaType(answer.Header.Get("Content-Type"))
	return answer.StatusCode == http.StatusSwitchingProtocols ||
		media == "text/event-stream" || record.StatusAtEnd(media) ||
		strings.EqualFold(answer.Header.Get("X-Accel-Buffering"), "no") || endsWithConnection(answer)
}

// endsWithConnection reports whether the body has neither a length nor chunks.
func endsWithConnection(answer *http.Response) bool {
	return answer.ProtoMajor == 1 && answer.ContentLength < 0 && !answer.Uncompressed && !slices.Contains(answer.TransferEncoding, "chunked")
}
