package middleware_test

import (
	"io"
	"maps"
	"net/http"
	"net/http/httptrace"
	"net/http/httputil"
	"net/textproto"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/httplatch/httplatch/lock"
	"github.com/httplatch/httplatch/lock/memstore"
	latch "github.com/httplatch/httplatch/middleware"
)

func speaking(base http.RoundTripper) http.RoundTripper {
	return latch.Upstream(base, latch.WithUpstreamHeaders())
}

// TestUpstreamSaysWhatItHasDone: Latch-Commit decides the answer to a repeat, and no client gets
// it. A gateway without the option ignores it.
func TestUpstreamSaysWhatItHasDone(t *testing.T) {
	t.Parallel()
	const empty = "\r\nContent-Length: 0\r\n\r\n"
	for answer, want := range map[string]struct{ speaking, without string }{
		"500 Failed\r\nLatch-Commit: no" + empty:                           {runs, runs},
		"500 Failed\r\nLatch-Commit: yes" + empty:                          {kept, runs},
		"502 Bad Gateway\r\nLatch-Commit: no" + empty:                      {runs, unknown},
		"502 Bad Gateway\r\nLatch-Commit: yes" + empty:                     {kept, unknown},
		"503 Busy\r\nLatch-Commit: No" + empty:                             {runs, unknown},
		"503 Busy\r\nRetry-After: 1\r\nLatch-Commit: YES" + empty:          {kept, runs},
		"524 Timeout\r\nLatch-Commit: no" + empty:                          {runs, unknown},
		"401 Unauthorized\r\nLatch-Commit: yes" + empty:                    {kept, runs},
		"404 Not Found\r\nLatch-Commit: no" + empty:                        {kept, kept},
		"201 Created\r\nLatch-Commit: no" + empty:                          {kept, kept},
		"201 Created\r\nLatch-Commit: yes" + empty:                         {kept, kept},
		"502 Bad Gateway\r\nLatch-Commit: perhaps" + empty:                 {unknown, unknown},
		"502 Bad Gateway\r\nLatch-Commit: yes\r\nLatch-Commit: no" + empty: {unknown, unknown},
		// Cut off: the gateway has no answer to keep.
		"500 Failed\r\nLatch-Commit: yes\r\nContent-Length: 9\r\n\r\nno": {unknown, unknown},
		"500 Failed\r\nLatch-Commit: no\r\nContent-Length: 9\r\n\r\nno":  {unknown, unknown},
	} {
		t.Run(strings.ReplaceAll(answer, "\r\n", "|"), func(t *testing.T) {
			t.Parallel()
			requireRepeat(t, speaking, answer, want.speaking)
			requireRepeat(t, upstream, answer, want.without)
		})
	}
}

// TestCommitmentBesideTheAnswer: Latch-Commit in a trailer or in an informational answer reaches no
// client, says nothing, and takes nothing else along.
func TestCommitmentBesideTheAnswer(t *testing.T) {
	t.Parallel()
	const end = "2\r\nno\r\n0\r\n"
	for name, tt := range map[string]struct {
		answer  string
		hints   []string // headers of informational answers
		trailer http.Header
		kept    bool // has nothing that keeps it from being replayed
	}{
		"a trailer":                        {"201 Created\r\nTransfer-Encoding: chunked\r\nTrailer: Latch-Commit\r\n\r\n" + end + "Latch-Commit: no\r\n\r\n", nil, nil, true},
		"a trailer that was not announced": {"201 Created\r\nTransfer-Encoding: chunked\r\n\r\n" + end + "Latch-Commit: no\r\n\r\n", nil, nil, true},
		"a trailer beside another": {
			"201 Created\r\nTransfer-Encoding: chunked\r\nTrailer: Latch-Commit, X-Sum\r\n\r\n" + end + "X-Sum: 1\r\nLatch-Commit: no\r\n\r\n",
			nil,
			http.Header{"X-Sum": {"1"}},
			false,
		},
		"a stream": {
			"201 Created\r\nX-Accel-Buffering: no\r\nTransfer-Encoding: chunked\r\nTrailer: Latch-Commit, X-Sum\r\n\r\n" + end + "X-Sum: 1\r\nLatch-Commit: no\r\n\r\n",
			nil,
			http.Header{"X-Sum": {"1"}},
			false,
		},
		"an informational answer": {"103 Early Hints\r\nLatch-Commit: no\r\nLink: </a>\r\n\r\nHTTP/1.1 201 Created\r\nContent-Length: 2\r\n\r\nno", []string{"Link"}, nil, true},
	} {
		for how, speak := range map[string]via{"speaking": speaking, "upstream": upstream, "plain": plain} {
			for _, method := range []string{http.MethodPost, http.MethodGet} {
				t.Run(name+", "+how+", "+method, func(t *testing.T) {
					t.Parallel()
					w := startWire(t, whole, func(int) string { return "HTTP/1.1 " + tt.answer })
					anew := func(http.RoundTripper) http.RoundTripper { return speak(&http.Transport{DisableKeepAlives: true}) }
					server := startServer(t, once(newLocker(t, memstore.New()))(proxyTo(t, w.url(), anew)))
					ask := func() (status int, header http.Header, hints []string, trailer http.Header) {
						r := clientRequest(t, server.URL, "k")
						if r.Method = method; method == http.MethodGet {
							r.Body, r.ContentLength = http.NoBody, 0
						}
						r = r.WithContext(httptrace.WithClientTrace(r.Context(), &httptrace.ClientTrace{
							Got1xxResponse: func(_ int, header textproto.MIMEHeader) error {
								hints = slices.AppendSeq(hints, maps.Keys(header))
								return nil
							},
						}))
						res, err := server.Client().Transport.RoundTrip(r)
						require.NoError(t, err)
						defer res.Body.Close()
						_, err = io.ReadAll(res.Body)
						require.NoError(t, err)
						return res.StatusCode, res.Header, hints, res.Trailer
					}
					status, header, hints, trailer := ask()
					require.Equal(t, 201, status)
					require.NotContains(t, header, "Latch-Commit")
					if how == "plain" {
						require.True(t, slices.Contains(hints, "Latch-Commit") || trailer.Get("Latch-Commit") != "", "this test can see one")
						return
					}
					require.ElementsMatch(t, tt.hints, hints)
					require.Len(t, trailer, len(tt.trailer))
					for h := range tt.trailer {
						require.Equal(t, tt.trailer.Get(h), trailer.Get(h))
					}
					if method == http.MethodPost && tt.kept {
						_, header, _, trailer = ask()
						require.Equal(t, "true", header.Get("Idempotent-Replayed"))
						require.Empty(t, trailer)
					}
				})
			}
		}
	}
}

// TestUpstreamHeadersAreTheGateways: headers of a client never arrive, in any spelling that a
// service may read as one of these headers. The headers of the gateway are the same in each
// attempt.
func TestUpstreamHeadersAreTheGateways(t *testing.T) {
	t.Parallel()
	forged := []string{"Latch-Key", "Latch-Attempt", "Latch-Commit", "Latch_Key", "latch_ATTEMPT", "Latch-Of-The-Future"}
	for name, tt := range map[string]struct {
		via   via
		guard func(l *lock.Locker) func(http.Handler) http.Handler
		verb  string
		want  []string // that arrive
	}{
		"Idempotent":      {speaking, func(l *lock.Locker) func(http.Handler) http.Handler { return once(l) }, "POST", []string{"Latch-Attempt", "Latch-Key"}},
		"Dedupe":          {speaking, func(l *lock.Locker) func(http.Handler) http.Handler { return latch.Dedupe(l, byUser, time.Hour) }, "POST", []string{"Latch-Attempt"}},
		"without headers": {upstream, func(l *lock.Locker) func(http.Handler) http.Handler { return once(l) }, "POST", nil},
		"a safe method":   {speaking, func(l *lock.Locker) func(http.Handler) http.Handler { return once(l) }, "GET", nil},
		"Lock":            {speaking, func(l *lock.Locker) func(http.Handler) http.Handler { return latch.Lock(l, "user", byUser) }, "POST", nil},
		"plain":           {plain, func(l *lock.Locker) func(http.Handler) http.Handler { return once(l) }, "POST", forged},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var got []http.Header
			target, err := url.Parse(startServer(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				got = append(got, r.Header)
				w.Header().Set("Latch-Commit", "yes")
				w.WriteHeader(http.StatusInternalServerError)
			})).URL)
			require.NoError(t, err)
			var id string
			proxy := proxyTo(t, target, tt.via)
			proxy.Rewrite = func(r *httputil.ProxyRequest) {
				id, _ = latch.Key(r.In.Context())
				r.SetURL(target)
			}
			server := startServer(t, tt.guard(newLocker(t, memstore.New()))(proxy))
			r := clientRequest(t, server.URL, "k")
			if r.Method = tt.verb; tt.verb == "GET" {
				r.Body, r.ContentLength = http.NoBody, 0
			}
			for _, h := range forged {
				r.Header[h] = []string{"forged"}
			}
			answer := exchanged(t, server, r)
			require.Equal(t, 500, answer.status)
			require.Equal(t, name == "plain", answer.header.Get("Latch-Commit") != "", "this test can see one")
			require.Len(t, got, 1)
			arrived := []string{}
			for h := range got[0] {
				if strings.HasPrefix(strings.ToLower(strings.ReplaceAll(h, "_", "-")), "latch-") {
					arrived = append(arrived, h)
				}
			}
			if name == "plain" {
				require.Len(t, arrived, len(forged), "this test can see a forged one")
				return
			}
			require.ElementsMatch(t, tt.want, arrived)
			for _, h := range tt.want {
				require.Equal(t, map[string]string{"Latch-Key": id, "Latch-Attempt": "1"}[h], got[0].Get(h))
			}
			require.Equal(t, "forged", r.Header.Get("Latch-Key"), "the caller's request is not changed")
		})
	}
}

func TestUpstreamPanicsOnANilOption(t *testing.T) {
	t.Parallel()
	require.PanicsWithValue(t, "middleware.Upstream: nil option", func() { latch.Upstream(nil, nil) })
}
