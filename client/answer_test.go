package client_test

import (
	"context"
	"io"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"testing/iotest"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/httplatch/httplatch/client"
	"github.com/httplatch/httplatch/internal/testkit/must"
	"github.com/httplatch/httplatch/internal/testkit/parallel"
)

// broken makes a response whose body breaks off after body.
func broken(status int, body string, headers ...string) func() *http.Response {
	return func() *http.Response {
		resp := answer(status, body, headers...)()
		resp.ContentLength = -1
		resp.Body = io.NopCloser(io.MultiReader(strings.NewReader(body), failing{io.ErrUnexpectedEOF}))
		return resp
	}
}

// announced is an answer with this Content-Length.
func announced(answer func() *http.Response, length int64) func() *http.Response {
	return func() *http.Response {
		resp := answer()
		resp.ContentLength = length
		return resp
	}
}

// TestBrokenAnswers checks the bytes that the caller reads from a sequence of broken answers.
func TestBrokenAnswers(t *testing.T) {
	t.Parallel()
	trailer := func() *http.Response {
		resp := broken(201, "order")()
		resp.Trailer = http.Header{"X": nil}
		return resp
	}
	tests := []struct {
		name     string
		answers  []func() *http.Response
		want     string
		failed   bool
		attempts int
	}{
		{"whole", []func() *http.Response{created}, "order 1", false, 1},
		{"broken once", []func() *http.Response{broken(201, "ord"), created}, "order 1", false, 2},
		{"broken before its first byte", []func() *http.Response{broken(201, ""), created}, "order 1", false, 2},
		{"broken after its last byte", []func() *http.Response{broken(201, "order 1"), created}, "order 1", false, 2},
		{"broken again, earlier", []func() *http.Response{broken(201, "order"), broken(201, "or"), created}, "order 1", false, 3},
		{"broken again, later", []func() *http.Response{broken(201, "or"), broken(201, "order"), created}, "order 1", false, 3},
		{"broken until no attempts are left", []func() *http.Response{broken(201, "or")}, "or", true, 4},
		{"a repeat is in progress", []func() *http.Response{broken(201, "or"), problem(409, "in-progress"), created}, "order 1", false, 3},
		{"a repeat is refused for a time", []func() *http.Response{broken(201, "or"), answer(503, "busy"), created}, "order 1", false, 3},
		{"a repeat has the status of a replay", []func() *http.Response{broken(201, "or"), answer(200, "order 1")}, "order 1", false, 2},
		{"a repeat is refused", []func() *http.Response{broken(201, "or"), problem(409, "result-not-replayable")}, "or", true, 2},
		{"a repeat is refused, before the first byte", []func() *http.Response{broken(201, ""), answer(422, "no tea")}, "", true, 2},
		{"a repeat is another answer", []func() *http.Response{broken(201, "or"), answer(201, "another order")}, "or", true, 2},
		{"a repeat is shorter", []func() *http.Response{broken(201, "order"), answer(201, "or")}, "order", true, 2},
		{"a repeat may come at once, and the result later", []func() *http.Response{broken(202, "or", "Retry-After: 3600"), answer(202, "order 1")}, "order 1", false, 2},
		{"with trailers", []func() *http.Response{trailer, created}, "order", true, 1},
		{"a refusal that the handler made", []func() *http.Response{broken(422, "no t"), answer(422, "no tea")}, "no t", true, 1},
		{"a failure, and its repeat would succeed", []func() *http.Response{broken(500, "no t"), created}, "no t", true, 1},
		{"a repeat has another length", []func() *http.Response{announced(broken(201, "ord"), 9), created}, "ord", true, 2},
		{"a repeat has the same length", []func() *http.Response{announced(broken(201, "ord"), 7), created}, "order 1", false, 2},
		{"a repeat has no length", []func() *http.Response{announced(broken(201, "ord"), 7), announced(created, -1)}, "order 1", false, 2},
		{"a repeat has another place", []func() *http.Response{broken(201, "ord", "Location: /1"), answer(201, "order 1", "Location: /2")}, "ord", true, 2},
		{"a repeat has no place", []func() *http.Response{broken(201, "", "Location: /1"), created}, "", true, 2},
		{"a repeat has the same place", []func() *http.Response{broken(201, "", "Location: /1"), answer(201, "order 1", "Location: /1")}, "order 1", false, 2},
		{"a repeat has another version", []func() *http.Response{broken(201, "ord", "Etag: 1"), answer(201, "order 1", "Etag: 2")}, "ord", true, 2},
		{"a repeat has another type", []func() *http.Response{broken(201, "", "Content-Type: text/html"), answer(201, "order 1", "Content-Type: text/plain")}, "", true, 2},
		{"a repeat has another coding", []func() *http.Response{broken(201, "ord", "Content-Encoding: a"), answer(201, "order 1", "Content-Encoding: b")}, "ord", true, 2},
		{"a problem, before its kind", []func() *http.Response{broken(409, `{"type":`, "Content-Type: application/problem+json"), created}, "order 1", false, 2},
	}
	synctest.Test(t, func(t *testing.T) {
		for _, tt := range tests {
			for _, wrap := range []func(io.Reader) io.Reader{iotest.OneByteReader, iotest.DataErrReader, func(r io.Reader) io.Reader { return r }} {
				var answers []func() *http.Response
				for _, a := range tt.answers {
					answers = append(answers, func() *http.Response {
						resp := a()
						resp.Body = io.NopCloser(wrap(resp.Body))
						return resp
					})
				}
				b := then(answers...)
				resp := must.Get(client.Transport(b).RoundTrip(request(t.Context(), t, http.MethodPost, "tea")))(t)
				got, err := io.ReadAll(resp.Body)
				require.Equal(t, tt.want, string(got), tt.name)
				require.Equal(t, tt.attempts, client.Attempts(resp), tt.name)
				if tt.failed {
					require.ErrorIs(t, err, io.ErrUnexpectedEOF, tt.name)
					_, again := resp.Body.Read(make([]byte, 1))
					require.Equal(t, err, again, "it stays")
				} else {
					require.NoError(t, err, tt.name)
				}
				for _, s := range b.sent {
					require.Equal(t, "tea", s.body)
					require.Equal(t, keyIn(b.sent[0].request), keyIn(s.request))
				}
				require.NoError(t, resp.Body.Close())
			}
		}
	})
}

func TestBrokenAnswerOfARequestWithoutAKey(t *testing.T) {
	t.Parallel()
	for _, method := range []string{http.MethodGet, http.MethodPut} {
		b := then(broken(200, "or"), created)
		resp := must.Get(client.Transport(b).RoundTrip(request(client.WithKey(t.Context(), ""), t, method, "")))(t)
		_, err := io.ReadAll(resp.Body)
		require.ErrorIs(t, err, io.ErrUnexpectedEOF, "two answers to a %s may differ", method)
		require.Len(t, b.sent, 1)
	}
}

func TestAnswerIsNotResumedAfterItsEnd(t *testing.T) {
	parallel.Bubble(t, func(t *testing.T) {
		// The caller closes the body while the request waits to be sent again.
		b := then(broken(201, "or"), created)
		rt := client.Transport(b, client.WithBackoff(time.Second, time.Second))
		resp := must.Get(rt.RoundTrip(request(t.Context(), t, http.MethodPost, "")))(t)
		time.AfterFunc(100*time.Millisecond, func() { _ = resp.Body.Close() })
		got, err := io.ReadAll(resp.Body)
		require.Equal(t, "or", string(got))
		require.ErrorIs(t, err, io.ErrUnexpectedEOF)

		// The context ends.
		ctx, cancel := context.WithCancel(t.Context())
		b = then(broken(201, "or"), created)
		resp = must.Get(client.Transport(b).RoundTrip(request(ctx, t, http.MethodPost, "")))(t)
		cancel()
		_, err = io.ReadAll(resp.Body)
		require.ErrorIs(t, err, io.ErrUnexpectedEOF)
		require.Len(t, b.sent, 1)
	})
}

// After an answer, the transport no longer reads the rest of the request's body, so the request cannot be sent again.
func TestAnswerToHalfABodyIsNotResumed(t *testing.T) {
	parallel.Bubble(t, func(t *testing.T) {
		for read, want := range map[int64]int{3: 1, 10: 1, 11: 2} {
			n := 0
			b := roundTripper(func(r *http.Request) (*http.Response, error) {
				defer r.Body.Close()
				n++
				require.Equal(t, "0123456789"[:min(read, 10)], string(must.Get(io.ReadAll(io.LimitReader(r.Body, read)))(t)))
				if n == 1 {
					return broken(201, "or")(), nil
				}
				return created(), nil
			})
			resp := must.Get(client.Transport(b).RoundTrip(digits(t)))(t)
			_, err := io.ReadAll(resp.Body)
			require.Equal(t, want == 2, err == nil, "%d bytes", read)
			require.Equal(t, want, client.Attempts(resp), "%d bytes", read)
		}
	})
}

// TestBaseWithoutBodies: net/http accepts a response whose Body is nil from a round tripper.
func TestBaseWithoutBodies(t *testing.T) {
	t.Parallel()
	bare := func(status int) func() *http.Response {
		return func() *http.Response { return &http.Response{StatusCode: status, Header: http.Header{}} }
	}
	synctest.Test(t, func(t *testing.T) {
		n, resp := send(t, http.MethodPost, bare(503))
		require.Equal(t, 2, n)
		require.Equal(t, 201, resp.StatusCode)
		n, resp = send(t, http.MethodPost, bare(201))
		require.Equal(t, 1, n)
		require.Nil(t, resp.Body)

		b := then(broken(201, ""), bare(201))
		resp = must.Get(client.Transport(b).RoundTrip(request(t.Context(), t, http.MethodPost, "")))(t)
		_, err := io.ReadAll(resp.Body)
		require.ErrorIs(t, err, io.ErrUnexpectedEOF)
	})
}

// TestRefusalsAreClosed: an answer that the caller does not get leaves nothing open.
func TestRefusalsAreClosed(t *testing.T) {
	parallel.Bubble(t, func(t *testing.T) {
		var bodies []*watched
		noted := func(answer func() *http.Response) func() *http.Response {
			return func() *http.Response {
				resp := answer()
				body := &watched{Reader: resp.Body}
				bodies, resp.Body = append(bodies, body), body
				return resp
			}
		}
		_, err := client.Transport(then(noted(answer(503, "busy")), noted(problem(409, "in-progress")), created)).
			RoundTrip(request(t.Context(), t, http.MethodPost, ""))
		require.NoError(t, err)
		require.Len(t, bodies, 2)
		for _, body := range bodies {
			require.Equal(t, 1, body.closed)
			n, err := body.Read(make([]byte, 1))
			require.Zero(t, n)
			require.Equal(t, io.EOF, err, "it was read to its end, so that the connection is used again")
		}
	})
}

// TestAnswersThatBreakOffAreClosed: the caller closes the first answer, and not those to repeats.
func TestAnswersThatBreakOffAreClosed(t *testing.T) {
	parallel.Bubble(t, func(t *testing.T) {
		var bodies []*watched
		b := &base{answer: func(n int, _ *http.Request) (*http.Response, error) {
			resp := broken(201, "order"[:5/n])()
			bodies = append(bodies, &watched{Reader: resp.Body})
			resp.Body = bodies[len(bodies)-1]
			return resp, nil
		}}
		resp := must.Get(client.Transport(b).RoundTrip(request(t.Context(), t, http.MethodPost, "")))(t)
		_, err := io.ReadAll(resp.Body)
		require.ErrorIs(t, err, io.ErrUnexpectedEOF)
		require.NoError(t, resp.Body.Close())
		require.Len(t, bodies, 4)
		for n, body := range bodies {
			require.NotZero(t, body.closed, "answer %d", n+1)
		}
	})
}

func TestEndless503(t *testing.T) {
	parallel.Bubble(t, func(t *testing.T) {
		for header, n := range map[string]int{
			"X: y":                                 4,
			"Retry-After: 0":                       4,
			"Retry-After: 1":                       4,
			"Retry-After: 25":                      3,
			"Retry-After: 61":                      1,
			"Retry-After: 99999999999999999999999": 1,
			"Retry-After: Fri, 31 Dec 9999 23:59:59 GMT": 1,
		} {
			start := time.Now()
			b := always(answer(503, "busy", header))
			resp := must.Get(client.Transport(b).RoundTrip(request(t.Context(), t, http.MethodPost, "tea")))(t)
			require.Equal(t, 503, resp.StatusCode)
			require.Equal(t, "busy", bodyOf(t, resp))
			require.Len(t, b.sent, n, header)
			require.Less(t, time.Since(start), time.Minute)
		}
	})
}

// trickle is a body of blanks that never ends, one each time.
type trickle struct {
	every  time.Duration
	closed atomic.Bool
}

func (b *trickle) Read(p []byte) (int, error) {
	if b.every > 0 {
		time.Sleep(b.every)
	}
	if b.closed.Load() {
		return 0, io.ErrClosedPipe
	}
	p[0] = ' '
	return 1, nil
}

func (b *trickle) Close() error { b.closed.Store(true); return nil }

// The body of a refusal is read for some seconds at most, and a body that is not used is closed soon.
func TestBodyThatNeverEnds(t *testing.T) {
	parallel.Bubble(t, func(t *testing.T) {
		for _, every := range []time.Duration{0, time.Millisecond, time.Second, time.Hour} {
			for _, contentType := range []string{"application/problem+json", "text/html"} {
				for status, want := range map[int]int{409: 1, 503: 2, 201: 1} {
					body := &trickle{every: every}
					start := time.Now()
					_, resp := send(t, http.MethodPost, func() *http.Response {
						resp := answer(status, "", "Content-Type: "+contentType)()
						resp.ContentLength, resp.Body = -1, body
						return resp
					}, client.WithBackoff(1, 1), client.WithMaxWait(10*time.Hour))
					took := time.Since(start)
					if every == time.Hour {
						took -= time.Hour // this body does not notice that it is closed
					}
					require.LessOrEqual(t, took, 8*time.Second, "%d %s %v", status, contentType, every)
					if every > 0 && contentType != "text/html" && status == 409 {
						want = 2 // it broke off, and may have been any refusal
					}
					require.Equal(t, want, client.Attempts(resp), "%d %s %v", status, contentType, every)
					_ = resp.Body.Close()
				}
			}
		}
	})
}
