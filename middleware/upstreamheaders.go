package middleware

import (
	"context"
	"io"
	"maps"
	"net/http"
	"net/http/httptrace"
	"net/textproto"
	"slices"
	"strconv"
	"strings"

	"github.com/httplatch/httplatch/lock"
)

const (
	attemptHeader = "Latch-Attempt"
	keyHeader     = "Latch-Key"
	commitHeader  = "Latch-Commit"
)

// UpstreamOption configures [Upstream]: [WithUpstreamHeaders].
type UpstreamOption interface{ applyUpstream(u *upstream) }

type upstreamOption func(u *upstream)

func (o upstreamOption) applyUpstream(u *upstream) { o(u) }

// WithUpstreamHeaders sets headers with which a gateway and its upstream, in any language, inform
// each other about a request under [Idempotent] or [Dedupe]. Without it, these headers are neither
// sent nor read:
//
//	Latch-Key: ...       to the upstream: the identity of the submission, [Key], if there is one
//	Latch-Attempt: 1     to the upstream: [lock.Attempt], more than 1 after a crash of the gateway
//	Latch-Commit: yes    from the upstream: the effect has happened
//	Latch-Commit: no     from the upstream: there was no effect
//
// A whole answer with yes is kept, whatever its status, as after [lock.Commit]. After an answer
// with no, the request had no effect, whatever the status: if the guard does not keep the answer,
// a repeat is sent. Any other value is ignored. The value is trusted, so the upstream must send no
// only if its work was rolled back.
//
// The option is for the Transport of a proxy, which sends each request on once. If a handler makes
// several calls, all of them would have the same Latch-Key.
func WithUpstreamHeaders() UpstreamOption {
	return upstreamOption(func(u *upstream) { u.headers = true })
}

// announce sets the headers that the upstream reads. r has its own header map.
func announce(r *http.Request) {
	if key, ok := Key(r.Context()); ok {
		r.Header[keyHeader] = []string{key}
	}
	if n := lock.Attempt(r.Context()); n > 0 {
		r.Header[attemptHeader] = []string{strconv.Itoa(n)}
	}
}

// commitment is the Latch-Commit of an upstream.
type commitment int

const (
	unsaid commitment = iota
	committed
	notCommitted
)

// takeCommitment removes Latch-Commit from an answer and returns its value. Only the header counts:
// when a trailer comes, the answer may already be on its way to the client.
func takeCommitment(answer *http.Response) commitment {
	if mayTrail(answer) {
		delete(answer.Trailer, commitHeader) // the answer may have announced it as a trailer
		answer.Body = &untrailed{answer.Body, answer}
	}
	values := answer.Header[commitHeader]
	if values == nil {
		return unsaid
	}
	delete(answer.Header, commitHeader)
	switch {
	case len(values) != 1:
		return unsaid // two services have set the header
	case strings.EqualFold(values[0], "yes"):
		return committed
	case strings.EqualFold(values[0], "no"):
		return notCommitted
	}
	return unsaid
}

// commit makes the guard keep the answer of the handler of ctx. If this fails, the outcome of the
// request stays unknown.
func (c commitment) commit(ctx context.Context) {
	if c == committed {
		_ = lock.Commit(ctx)
	}
}

// ofClient reports whether a client has set a header of this name that only a gateway may set.
// CGI and WSGI make one name of Latch-Key and Latch_Key.
func ofClient(name string) bool {
	const prefix = "latch-"
	return len(name) >= len(prefix) && strings.EqualFold(strings.ReplaceAll(name[:len(prefix)], "_", "-"), prefix)
}

// withoutLatch returns r without the headers that only a gateway may set.
func withoutLatch(r *http.Request) *http.Request {
	found := false
	for name := range r.Header {
		found = found || ofClient(name)
	}
	if !found {
		return r
	}
	r = r.WithContext(r.Context())
	r.Header = maps.Clone(r.Header)
	maps.DeleteFunc(r.Header, func(name string, _ []string) bool { return ofClient(name) })
	return r
}

// mayTrail reports whether trailers can follow the body of the answer.
func mayTrail(answer *http.Response) bool {
	if answer.Body == nil || answer.Body == http.NoBody || answer.StatusCode == http.StatusSwitchingProtocols {
		return false
	}
	return answer.ProtoMajor > 1 || len(answer.Trailer) > 0 || slices.Contains(answer.TransferEncoding, "chunked")
}

// untrailed is the body of an answer. The trailers are there when it ends, without Latch-Commit.
type untrailed struct {
	io.ReadCloser

	answer *http.Response
}

func (b *untrailed) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if err != nil {
		delete(b.answer.Trailer, commitHeader)
	}
	return n, err
}

func (b *untrailed) Close() error {
	err := b.ReadCloser.Close()
	delete(b.answer.Trailer, commitHeader)
	return err
}

// withoutEarly returns r. If the context of r passes informational answers on, like the context of
// a ReverseProxy, the returned request removes Latch-Commit from them.
func withoutEarly(r *http.Request) *http.Request {
	if hooks := httptrace.ContextClientTrace(r.Context()); hooks == nil || hooks.Got1xxResponse == nil {
		return r
	}
	return r.WithContext(httptrace.WithClientTrace(r.Context(), &httptrace.ClientTrace{ // is called first
		Got1xxResponse: func(_ int, header textproto.MIMEHeader) error {
			delete(header, commitHeader)
			return nil
		},
	}))
}
