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

// WithUpstreamHeaders lets a gateway and its upstream, in any language, speak about a request
// under [Idempotent] or [Dedupe]. Without it, these headers are neither sent nor read:
//
//	Latch-Key: ...       to it: the identity of the submission, [Key]; none where Key has none
//	Latch-Attempt: 1     to it: [lock.Attempt], more than 1 after a crash of the gateway
//	Latch-Commit: yes    from it: the effect has happened
//	Latch-Commit: no     from it: there was no effect
//
// A whole answer with yes is kept, whatever its status, as after [lock.Commit]. After one with
// no, the request had no effect, whatever its status: if the guard does not keep the answer, a
// repeat is sent. Another value counts as none. The value is trusted, so the upstream must send
// no only if its work was rolled back.
//
// It is for the Transport of a proxy, which sends one request on. The calls of a handler that
// makes several would all have the same Latch-Key.
func WithUpstreamHeaders() UpstreamOption {
	return upstreamOption(func(u *upstream) { u.headers = true })
}

// announce sets the headers that the upstream reads. r has a header of its own.
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

// takeCommitment removes Latch-Commit from an answer and returns its value. Only the header
// counts: a trailer comes when the answer may be on its way.
func takeCommitment(answer *http.Response) commitment {
	if mayTrail(answer) {
		delete(answer.Trailer, commitHeader) // announced
		answer.Body = &untrailed{answer.Body, answer}
	}
	values := answer.Header[commitHeader]
	if values == nil {
		return unsaid
	}
	delete(answer.Header, commitHeader)
	switch {
	case len(values) != 1:
		return unsaid // two services have spoken
	case strings.EqualFold(values[0], "yes"):
		return committed
	case strings.EqualFold(values[0], "no"):
		return notCommitted
	}
	return unsaid
}

// commit keeps the answer of the handler of ctx. If that fails, its outcome is unknown: the
// request stays in doubt.
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

// withoutEarly returns r. If its context passes informational answers on, as a ReverseProxy's
// does, these come without Latch-Commit.
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
