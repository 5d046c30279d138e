package middleware

import (
	"maps"
	"net/http"
	"strings"

	"github.com/httplatch/httplatch/middleware/internal/record"
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
// A whole answer with yes is kept, whatever its status, as after [lock.Commit]. After an answer with no, a repeat is
// sent, unless the guard keeps the answer. Any other value is ignored. The value is trusted, so the upstream must send
// no only if its work was rolled back.
//
// The option is for the Transport of a proxy, which sends each request on once. If a handler makes
// several calls, all of them would have the same Latch-Key.
func WithUpstreamHeaders() UpstreamOption {
	return upstreamOption(func(u *upstream) { u.headers = true })
}

// commitment says whether a request had its effect.
type commitment int

const (
	unsaid commitment = iota
	committed
	notCommitted
	uncertain
)

// commitmentOf returns what the Latch-Commit of an answer says, and else what its status says, and removes
// the header. A trailer does not count: when it comes, the answer may already be on its way to the client. A
// 502 or 504 comes from a gateway that may have lost the answer of the service, and a 499 from a service that
// has stopped in the middle.
func (u *upstream) commitmentOf(answer *http.Response) commitment {
	values := answer.Header[commitHeader]
	delete(answer.Header, commitHeader)
	if u.headers && len(values) == 1 { // more than one may come from two services
		switch {
		case strings.EqualFold(values[0], "yes"):
			return committed
		case strings.EqualFold(values[0], "no"):
			return notCommitted
		}
	}
	switch status := answer.StatusCode; {
	case status < http.StatusBadRequest:
		return unsaid
	case status == http.StatusBadGateway, status == http.StatusGatewayTimeout, status == record.StatusClientGone,
		status == http.StatusServiceUnavailable && answer.Header.Get("Retry-After") == "", status > http.StatusNetworkAuthenticationRequired:
		return uncertain
	}
	return notCommitted
}

// withoutLatch returns r without the headers that only a gateway may set. CGI and WSGI make one name of Latch-Key and
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
