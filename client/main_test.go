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

	"github.com/httplatch/httplatch/client"
	"github.com/httplatch/httplatch/internal/testkit/must"
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

// wire is a transport whose connections end with the test.
func wire(t *testing.T) *http.Transport {
	t.Helper()
	base := &http.Transport{}
	t.Cleanup(base.CloseIdleConnections)
	return base
}

// plainReader hides the type of a reader, so that there is no GetBody.
type plainReader struct{ io.Reader }

func request(ctx context.Context, tb testing.TB, method, body string) *http.Request {
	tb.Helper()
	var r io.Reader
	if body != "" {
		r = bytes.NewReader([]byte(body))
	}
	return must.Get(http.NewRequestWithContext(ctx, method, "http://shop.example/orders", r))(tb)
}

// digits is a POST whose body can be read once, and has an unknown length.
func digits(tb testing.TB) *http.Request {
	tb.Helper()
	req := request(tb.Context(), tb, http.MethodPost, "")
	req.Body, req.ContentLength = io.NopCloser(plainReader{strings.NewReader("0123456789")}), -1
	return req
}

func bodyOf(tb testing.TB, resp *http.Response) string {
	tb.Helper()
	body := must.Get(io.ReadAll(resp.Body))(tb)
	require.NoError(tb, resp.Body.Close())
	return string(body)
}

// instant is a base without a cost, so that Transport is measured.
type instant struct{ body []byte }

func (b instant) RoundTrip(r *http.Request) (*http.Response, error) {
	if r.Body != nil {
		_ = r.Body.Close()
	}
	return &http.Response{
		StatusCode: http.StatusCreated, Header: r.Header, ContentLength: int64(len(b.body)),
		Body: io.NopCloser(bytes.NewReader(b.body)), Request: r,
	}, nil
}

// The cost that docs/clients.md states, which does not depend on the machine.
func TestAllocations(t *testing.T) {
	rt := client.Transport(instant{[]byte("order 1")})
	allocations := func(rt http.RoundTripper, req *http.Request) float64 {
		return testing.AllocsPerRun(100, func() {
			resp, err := rt.RoundTrip(req)
			if err != nil {
				t.Fatal(err)
			}
			_, _ = io.Copy(io.Discard, resp.Body)
			_ = resp.Body.Close()
		})
	}
	for _, body := range []string{"", "tea"} {
		req := request(t.Context(), t, http.MethodPost, body)
		require.LessOrEqual(t, allocations(rt, req)-allocations(instant{[]byte("order 1")}, req), 10.0, "body %q", body)
	}
}
