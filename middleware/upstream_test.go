package middleware_test

import (
	"bufio"
	"compress/gzip"
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	chimw "github.com/go-chi/chi/v5/middleware"
	"github.com/stretchr/testify/require"

	"github.com/httplatch/httplatch/internal/testkit/faketx"
	"github.com/httplatch/httplatch/internal/testkit/must"
	"github.com/httplatch/httplatch/internal/testkit/parallel"
	"github.com/httplatch/httplatch/lock"
	"github.com/httplatch/httplatch/lock/memstore"
	latch "github.com/httplatch/httplatch/middleware"
)

// problemBase begins the types of our problems.
const problemBase = "https://github.com/httplatch/httplatch/blob/main/docs/problems.md#"

// TestUpstreamRefusals checks which answers of a handler count as the refusal of a guard behind a
// proxy, in a guard that keeps every other answer: the header decides, and not the body.
func TestUpstreamRefusals(t *testing.T) {
	t.Parallel()
	ours := `{"type":"` + problemBase + `held","title":"t","status":409}`
	for name, tt := range map[string]struct {
		status int
		mark   string // Latch-Problem; "": none
		body   string
		kept   bool
	}{
		"marked":          {409, "held", ours, false},
		"an unknown kind": {422, "of-the-future", ours, false},
		"another format":  {400, "key-missing", "no key", false},
		"a long body":     {409, "held", strings.Repeat("t", 3<<20), false},
		"below 400":       {201, "held", ours, true},
		"not marked":      {409, "", ours, true},
	} {
		for _, flushes := range []bool{false, true} {
			parallel.Run(t, fmt.Sprint(name, ", flushes: ", flushes), func(t *testing.T) {
				h := once(newLocker(t, memstore.New()), latch.WithFinal(func(int) bool { return true }))(
					http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
						if tt.mark != "" {
							w.Header().Set("Latch-Problem", tt.mark)
						}
						w.Header().Set("Content-Length", strconv.Itoa(len(tt.body)))
						w.WriteHeader(tt.status)
						if flushes {
							require.NoError(t, http.NewResponseController(w).Flush())
						}
						_, _ = io.WriteString(w, tt.body)
					}))
				require.Equal(t, tt.status, serve(h, keyed("k")).Code)
				again := serve(h, keyed("k"))
				require.Equal(t, tt.status, again.Code)
				require.Equal(t, tt.body, again.Body.String())
				require.Equal(t, tt.kept, again.Header().Get("Idempotent-Replayed") == "true")
			})
		}
	}
}

// The effect has happened, so the handler does not run again. But the refusal of a service is no answer to a repeat.
func TestRefusalAfterCommitIsNotKept(t *testing.T) {
	t.Parallel()
	for name, refuse := range map[string]http.Handler{
		"of a service": acts(header("Latch-Problem", "held"), status(http.StatusConflict)),
		"of the handler": http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			(&latch.Problem{Status: http.StatusConflict}).Respond(w, r, nil)
		}),
	} {
		parallel.Run(t, name, func(t *testing.T) {
			var e effects
			h := once(newLocker(t, memstore.New()))(e.then(func(w http.ResponseWriter, r *http.Request) {
				require.NoError(t, lock.Commit(r.Context()))
				refuse.ServeHTTP(w, r)
			}))
			require.Equal(t, http.StatusConflict, serve(h, keyed("k")).Code)
			requireProblem(t, wantProblem{status: 409, kind: "result-not-replayable"}, serve(h, keyed("k")))
			e.require(t, 1)
		})
	}
}

// TestAnswerThatEndsWithItsConnection: nothing shows whether such an answer is whole, so that no repeat gets it. The
// proxy flushes it, also where the flush has no effect.
func TestAnswerThatEndsWithItsConnection(t *testing.T) {
	t.Parallel()
	unflushed := func(h http.Handler) http.Handler { // as behind the writers of many loggers
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			h.ServeHTTP(struct{ http.ResponseWriter }{w}, r)
		})
	}
	for name, guard := range map[string]func(h http.Handler) http.Handler{
		"streamed": once(newLocker(t, memstore.New(), patient)),
		"no flush": func(h http.Handler) http.Handler {
			l := newLocker(t, memstore.New())
			return unflushed(once(l)(once(newLocker(t, memstore.New(), patient))(latch.Lock(l, "user", byUser)(h))))
		},
		"in a transaction": once(newLocker(t, faketx.New(), lock.WithTransaction())),
	} {
		parallel.Run(t, name, func(t *testing.T) {
			w := startWire(t, whole, func(int) string { return "HTTP/1.0 200 OK\r\nContent-Type: text/plain\r\n\r\nor" })
			server := startServer(t, guard(proxyTo(t, w.url, upstream)))
			require.Equal(t, "or", string(exchanged(t, server, clientRequest(t, server.URL, "k")).body))
			again := exchanged(t, server, clientRequest(t, server.URL, "k"))
			require.Contains(t, string(again.body), "#result-not-replayable")
			require.EqualValues(t, 1, w.posts.Load())
		})
	}
}

// TestOwnAnswerAfterSuchACall: a handler that gives its own answer, with a length, is not the one that was cut off.
func TestOwnAnswerAfterSuchACall(t *testing.T) {
	t.Parallel()
	w := startWire(t, whole, func(int) string { return "HTTP/1.0 200 OK\r\n\r\nor" })
	client := latch.Upstream(&http.Transport{DisableKeepAlives: true})
	server := startServer(t, once(newLocker(t, memstore.New()))(http.HandlerFunc(func(out http.ResponseWriter, r *http.Request) {
		call := must.Get(http.NewRequestWithContext(r.Context(), http.MethodPost, w.url.String(), nil))(t)
		require.NoError(t, sendBy(t, client, call))
		out.Header().Set("Content-Length", "5")
		must.Get(out.Write([]byte("order")))(t)
		flush(out)
	})))
	for range 2 {
		require.Equal(t, "order", string(exchanged(t, server, clientRequest(t, server.URL, "k")).body))
	}
	require.EqualValues(t, 1, w.posts.Load())
}

// TestCompressingServerOfCalls: a server behind a gateway compresses its answers, in which no replay could get the
// id of its call. Clients accept that without being asked to, such as fetch.
func TestCompressingServerOfCalls(t *testing.T) {
	t.Parallel()
	var s rpcServer
	target := must.Get(url.Parse(startServer(t, chimw.Compress(gzip.BestSpeed)(&s)).URL))(t)
	gateway := startServer(t, rpcGuard(t)(proxyTo(t, target, upstream)))
	for _, id := range []string{"1", "2"} {
		r := clientRequest(t, gateway.URL, "k")
		r.Body, r.ContentLength = io.NopCloser(strings.NewReader(buy(id, `{}`))), -1
		r.Header.Set("Content-Type", "application/json")
		r.Header.Set("Accept-Encoding", "gzip, deflate, br")
		require.JSONEq(t, `{"jsonrpc": "2.0", "result": {"id": "inner", "order": 1}, "id": `+id+`}`, string(exchanged(t, gateway, r).body))
	}
	s.require(t, 1)
}

// Frames of HTTP/2 (RFC 9113, section 6), and their flags.
const (
	dataFrame, headersFrame, resetFrame, settingsFrame, goAwayFrame = 0, 1, 3, 4, 7

	endStream, ack = 1, 1
)

func frame(kind, flags byte, stream uint32, payload ...byte) []byte {
	b := binary.BigEndian.AppendUint32(nil, uint32(len(payload))<<8|uint32(kind))
	return append(binary.BigEndian.AppendUint32(append(b, flags), stream), payload...)
}

// resets starts an upstream over HTTP/2 without TLS that ends each request with reply, once it has read the whole.
func resets(t *testing.T, requests *atomic.Int64, reply func(stream uint32) []byte) *url.URL {
	t.Helper()
	return listen(t, func(conn net.Conn) {
		in := bufio.NewReader(conn)
		if _, err := in.Discard(len("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n")); err != nil {
			return
		}
		_, _ = conn.Write(append(frame(settingsFrame, 0, 0), frame(settingsFrame, ack, 0)...))
		for {
			var head [9]byte
			if _, err := io.ReadFull(in, head[:]); err != nil {
				return
			}
			if _, err := in.Discard(int(binary.BigEndian.Uint32(head[:]) >> 8)); err != nil {
				return
			}
			if kind := head[3]; (kind == dataFrame || kind == headersFrame) && head[4]&endStream != 0 {
				requests.Add(1)
				answer := reply(binary.BigEndian.Uint32(head[5:]))
				_, _ = conn.Write(answer)
				if answer[3] == goAwayFrame {
					return
				} // else the next request may come on this connection
			}
		}
	})
}

// TestStreamsThatWereNotProcessed: HTTP/2 has two ways to say so, and a server that shuts down uses them. The
// request had no effect, so that its repeat is sent.
func TestStreamsThatWereNotProcessed(t *testing.T) {
	t.Parallel()
	reset := func(code byte) func(uint32) []byte {
		return func(stream uint32) []byte { return frame(resetFrame, 0, stream, 0, 0, 0, code) }
	}
	goAway := func(uint32) []byte { return frame(goAwayFrame, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0) }
	for name, tt := range map[string]struct {
		reply func(stream uint32) []byte
		sent  int64
		again string
	}{
		"REFUSED_STREAM": {reset(7), 2, ""},
		"GOAWAY":         {goAway, 2, ""},
		"INTERNAL_ERROR": {reset(2), 1, "#outcome-unknown"},
	} {
		parallel.Run(t, name, func(t *testing.T) {
			var requests atomic.Int64
			base := &http.Transport{Protocols: new(http.Protocols)}
			base.Protocols.SetUnencryptedHTTP2(true)
			defer base.CloseIdleConnections()
			l := newLocker(t, memstore.New(), lock.WithRerunAbandoned())
			h := once(l)(proxyTo(t, resets(t, &requests, tt.reply), func(http.RoundTripper) http.RoundTripper { return upstream(base) }))
			require.Equal(t, 502, serve(h, keyed("k")).Code)
			require.Contains(t, serve(h, keyed("k")).Body.String(), tt.again)
			require.Equal(t, tt.sent, requests.Load())
		})
	}
}

// The error of a call that a lost lease has ended says so, over HTTP/2 too: context.Canceled would be of a client that has
// left, for which a proxy such as Caddy answers 499.
func TestCallThatALostLeaseHasEnded(t *testing.T) {
	t.Parallel()
	for _, http2 := range []bool{false, true} {
		store := memstore.New()
		service := startServerOf(t, http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }), http2)
		serve(once(newLocker(t, store, lock.WithLease(time.Second)))(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
			operatorFrees(t, store)
			call := must.Get(http.NewRequestWithContext(r.Context(), http.MethodPost, service.URL, http.NoBody))(t)
			err := sendBy(t, upstream(service.Client().Transport), call)
			require.ErrorIs(t, err, lock.ErrLost)
			require.NotErrorIs(t, err, context.Canceled)
		})), keyed("k"))
	}
}

func speaking(base http.RoundTripper) http.RoundTripper {
	return latch.Upstream(base, latch.WithUpstreamHeaders())
}

// Latch-Commit decides the answer to a repeat, and no client gets it. A gateway without the option ignores it.
func TestUpstreamSaysWhatItHasDone(t *testing.T) {
	t.Parallel()
	const empty = "\r\nContent-Length: 0\r\n\r\n"
	for answer, want := range map[string]struct{ speaking, without string }{
		"500 Failed\r\nLatch-Commit: no" + empty:                           {runs, runs},
		"503 Busy\r\nRetry-After: 1\r\nLatch-Commit: YES" + empty:          {kept, runs},
		"401 Unauthorized\r\nLatch-Commit: yes" + empty:                    {kept, runs},
		"404 Not Found\r\nLatch-Commit: no" + empty:                        {kept, kept},
		"502 Bad Gateway\r\nLatch-Commit: yes\r\nLatch-Commit: no" + empty: {unknown, unknown},
		// Cut off: the gateway has no answer to keep.
		"500 Failed\r\nLatch-Commit: yes\r\nContent-Length: 9\r\n\r\nno": {unknown, unknown},
	} {
		parallel.Run(t, strings.ReplaceAll(answer, "\r\n", "|"), func(t *testing.T) {
			requireRepeat(t, speaking, answer, want.speaking)
			requireRepeat(t, upstream, answer, want.without)
		})
	}
}

// TestUpstreamHeadersAreTheGateways: headers of a client never arrive, in any spelling that a service may read as one
// of these headers. The headers of the gateway are the same in each attempt.
func TestUpstreamHeadersAreTheGateways(t *testing.T) {
	t.Parallel()
	forged := []string{"Latch-Key", "Latch-Attempt", "Latch-Commit", "Latch_Key", "latch_ATTEMPT", "Latch-Of-The-Future"}
	for name, tt := range map[string]struct {
		via   via
		guard func(l *lock.Locker) guardFunc
		verb  string
		want  []string // that arrive
	}{
		"Idempotent":      {speaking, func(l *lock.Locker) guardFunc { return once(l) }, "POST", []string{"Latch-Attempt", "Latch-Key"}},
		"Dedupe":          {speaking, func(l *lock.Locker) guardFunc { return latch.Dedupe(l, byUser, time.Hour) }, "POST", []string{"Latch-Attempt"}},
		"without headers": {upstream, func(l *lock.Locker) guardFunc { return once(l) }, "POST", nil},
		"a safe method":   {speaking, func(l *lock.Locker) guardFunc { return once(l) }, "GET", nil},
		"Lock":            {speaking, func(l *lock.Locker) guardFunc { return latch.Lock(l, "user", byUser) }, "POST", nil},
		"plain":           {plain, func(l *lock.Locker) guardFunc { return once(l) }, "POST", forged},
	} {
		parallel.Run(t, name, func(t *testing.T) {
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
