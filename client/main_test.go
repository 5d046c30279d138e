package client_test

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const docs = "https://github.com/httplatch/httplatch/blob/main/docs/problems.md#"

// base is a round tripper that answers the n-th attempt, counted from 1, as a server
// would: it reads the body of the request and closes it.
type base struct {
	answer func(n int, r *http.Request) (*http.Response, error)
	sent   []sent
}

// sent is one attempt on the wire.
type sent struct {
	request *http.Request
	body    string
}

func (b *base) RoundTrip(r *http.Request) (*http.Response, error) {
	s := sent{request: r}
	if r.Body != nil {
		body, err := io.ReadAll(r.Body)
		_ = r.Body.Close()
		if err != nil {
			return nil, err
		}
		s.body = string(body)
	}
	b.sent = append(b.sent, s)
	resp, err := b.answer(len(b.sent), r)
	if resp != nil {
		resp.Request = r
	}
	return resp, err
}

// always answers each attempt in the same way.
func always(answer func() *http.Response) *base {
	return &base{answer: func(int, *http.Request) (*http.Response, error) { return answer(), nil }}
}

// then answers the attempts one after the other, and all others as the last.
func then(answers ...func() *http.Response) *base {
	return &base{answer: func(n int, _ *http.Request) (*http.Response, error) {
		return answers[min(n, len(answers))-1](), nil
	}}
}

// keyIn is the key that a request has, however it is spelled.
func keyIn(r *http.Request) string {
	for name, values := range r.Header {
		if strings.EqualFold(name, "Idempotency-Key") {
			return values[0]
		}
	}
	return ""
}

// answer makes a response; headers are lines "Name: value".
func answer(status int, body string, headers ...string) func() *http.Response {
	return func() *http.Response {
		resp := &http.Response{
			StatusCode: status, ContentLength: int64(len(body)),
			Header: http.Header{}, Body: io.NopCloser(strings.NewReader(body)),
		}
		for _, h := range headers {
			name, value, _ := strings.Cut(h, ": ")
			resp.Header.Add(name, value)
		}
		return resp
	}
}

// problem is a refusal by a guard of httplatch.
func problem(status int, kind string, headers ...string) func() *http.Response {
	body := fmt.Sprintf(`{"type":%q,"title":"A title.","status":%d}`+"\n", docs+kind, status)
	return answer(status, body, append(headers, "Content-Type: application/problem+json")...)
}

var created = answer(http.StatusCreated, "order 1")

// plainReader hides the type of a reader, so that there is no GetBody.
type plainReader struct{ io.Reader }

func request(ctx context.Context, tb testing.TB, method, body string) *http.Request {
	tb.Helper()
	var r io.Reader
	if body != "" {
		r = bytes.NewReader([]byte(body))
	}
	req, err := http.NewRequestWithContext(ctx, method, "http://shop.example/orders", r)
	require.NoError(tb, err)
	return req
}

func bodyOf(tb testing.TB, resp *http.Response) string {
	tb.Helper()
	body, err := io.ReadAll(resp.Body)
	require.NoError(tb, err)
	require.NoError(tb, resp.Body.Close())
	return string(body)
}
