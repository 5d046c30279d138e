package client_test

import (
	"context"
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"
	"testing/iotest"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/httplatch/httplatch/client"
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
		{"a refusal for other credentials", []func() *http.Response{broken(401, "no t"), created}, "no t", true, 1},
		{"a refusal for now", []func() *http.Response{broken(409, "no t", "Retry-After: 0"), created}, "no t", true, 1},
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
				resp, err := client.Transport(b).RoundTrip(request(t.Context(), t, http.MethodPost, "tea"))
				require.NoError(t, err)
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
		resp, err := client.Transport(b).RoundTrip(request(client.WithKey(t.Context(), ""), t, method, ""))
		require.NoError(t, err)
		_, err = io.ReadAll(resp.Body)
		require.ErrorIs(t, err, io.ErrUnexpectedEOF, "two answers to a %s may differ", method)
		require.Len(t, b.sent, 1)
	}
}

func TestAnswerIsNotResumedAfterItsEnd(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		// The caller closes the body while the request waits to be sent again.
		b := then(broken(201, "or"), created)
		rt := client.Transport(b, client.WithBackoff(time.Second, time.Second))
		resp, err := rt.RoundTrip(request(t.Context(), t, http.MethodPost, ""))
		require.NoError(t, err)
		time.AfterFunc(100*time.Millisecond, func() { _ = resp.Body.Close() })
		got, err := io.ReadAll(resp.Body)
		require.Equal(t, "or", string(got))
		require.ErrorIs(t, err, io.ErrUnexpectedEOF)

		// The context ends.
		ctx, cancel := context.WithCancel(t.Context())
		b = then(broken(201, "or"), created)
		resp, err = client.Transport(b).RoundTrip(request(ctx, t, http.MethodPost, ""))
		require.NoError(t, err)
		cancel()
		_, err = io.ReadAll(resp.Body)
		require.ErrorIs(t, err, io.ErrUnexpectedEOF)
		require.Len(t, b.sent, 1)
	})
}

// TestAnswerIsNotReadInAdvance: it is returned before it has come.
func TestAnswerIsNotReadInAdvance(t *testing.T) {
	t.Parallel()
	r, w := io.Pipe()
	b := always(func() *http.Response {
		resp := created()
		resp.Body, resp.ContentLength = r, 3
		return resp
	})
	resp, err := client.Transport(b).RoundTrip(request(t.Context(), t, http.MethodPost, ""))
	require.NoError(t, err)
	go func() { _, _ = w.Write([]byte("abc")); w.Close() }()
	require.Equal(t, "abc", bodyOf(t, resp))
}

// TestAnswerToHalfABodyIsNotResumed: after an answer, the transport no longer reads the rest of the
// request's body, so the request cannot be sent again.
func TestAnswerToHalfABodyIsNotResumed(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		for read, want := range map[int64]int{3: 1, 10: 1, 11: 2} {
			n := 0
			b := roundTripper(func(r *http.Request) (*http.Response, error) {
				defer r.Body.Close()
				n++
				got, err := io.ReadAll(io.LimitReader(r.Body, read))
				require.NoError(t, err)
				require.Equal(t, "0123456789"[:min(read, 10)], string(got))
				if n == 1 {
					return broken(201, "or")(), nil
				}
				return created(), nil
			})
			req := request(t.Context(), t, http.MethodPost, "")
			req.Body, req.ContentLength = io.NopCloser(plainReader{strings.NewReader("0123456789")}), -1
			resp, err := client.Transport(b).RoundTrip(req)
			require.NoError(t, err)
			_, err = io.ReadAll(resp.Body)
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
		resp, err := client.Transport(b).RoundTrip(request(t.Context(), t, http.MethodPost, ""))
		require.NoError(t, err)
		_, err = io.ReadAll(resp.Body)
		require.ErrorIs(t, err, io.ErrUnexpectedEOF)
	})
}

// TestRefusalsAreClosed: an answer that the caller does not get leaves nothing open.
func TestRefusalsAreClosed(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var bodies []*watched
		b := &base{answer: func(n int, _ *http.Request) (*http.Response, error) {
			switch n {
			case 1:
				resp := answer(503, "busy")()
				bodies = append(bodies, &watched{Reader: resp.Body})
				resp.Body = bodies[0]
				return resp, nil
			case 2:
				resp := problem(409, "in-progress")()
				bodies = append(bodies, &watched{Reader: resp.Body})
				resp.Body = bodies[1]
				return resp, nil
			case 3:
				return nil, errors.New("broken")
			}
			return created(), nil
		}}
		_, err := client.Transport(b).RoundTrip(request(t.Context(), t, http.MethodPost, ""))
		require.NoError(t, err)
		for _, body := range bodies {
			require.Equal(t, 1, body.closed)
			n, err := body.Read(make([]byte, 1))
			require.Zero(t, n)
			require.Equal(t, io.EOF, err, "it was read to its end, so that the connection is used again")
		}
	})
}
