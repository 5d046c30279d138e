package client_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/httplatch/httplatch/client"
	latch "github.com/httplatch/httplatch/middleware"
)

func response(contentType string, body io.Reader) *http.Response {
	return &http.Response{
		StatusCode: 409, Body: io.NopCloser(body), ContentLength: -1,
		Header: http.Header{"Content-Type": {contentType}, "Retry-After": {"2"}},
	}
}

func TestParseProblem(t *testing.T) {
	t.Parallel()
	const problemType = "application/problem+json"
	whole := client.Problem{Status: 409, Type: "a", Title: "b", Detail: "c", RetryAfter: 2 * time.Second}
	bare := client.Problem{Status: 409, Type: "about:blank", RetryAfter: 2 * time.Second}
	for _, tt := range []struct {
		contentType, body string
		want              *client.Problem
	}{
		{problemType, `{"type":"a","title":"b","detail":"c","status":418,"more":[{}]}`, &whole},
		{"Application/Problem+JSON; charset=utf-8", ` {"type":"a","title":"b","detail":"c"} ` + "\n", &whole},
		{problemType, `{}`, &bare},
		{problemType, `{"type":7,"title":["x"],"detail":null}`, &bare},
		{problemType, `null`, nil},
		{problemType, `[]`, nil},
		{problemType, `"a"`, nil},
		{problemType, ``, nil},
		{problemType, `{"type":"a"`, nil},
		{problemType, `{"type":"a"}{}`, nil},
		{problemType, `{"type":"a","x":"` + strings.Repeat("x", 64<<10) + `"}`, nil},
		{"application/json", `{"type":"a"}`, nil},
		{"application/problem+xml", `{"type":"a"}`, nil},
		{"application/problem+json; charset", `{"type":"a"}`, nil},
		{"", `{"type":"a"}`, nil},
	} {
		resp := response(tt.contentType, plainReader{strings.NewReader(tt.body)})
		for range 2 { // it can be asked again
			p, ok := client.ParseProblem(resp)
			require.Equal(t, tt.want != nil, ok, "%.100s", tt.body)
			require.Equal(t, tt.want, p, "%.100s", tt.body)
		}
		require.Equal(t, tt.body, bodyOf(t, resp), "the body is put back")
	}
}

func TestParseProblemOfNothing(t *testing.T) {
	t.Parallel()
	for _, resp := range []*http.Response{nil, {}, {Header: http.Header{"Content-Type": {"application/problem+json"}}}} {
		_, ok := client.ParseProblem(resp)
		require.False(t, ok)
	}
}

func TestParseProblemPutsTheErrorBack(t *testing.T) {
	t.Parallel()
	broken := errors.New("broken")
	resp := response("application/problem+json", io.MultiReader(strings.NewReader(`{"type":`), failing{broken}))
	_, ok := client.ParseProblem(resp)
	require.False(t, ok)
	got, err := io.ReadAll(resp.Body)
	require.Equal(t, broken, err)
	require.Equal(t, `{"type":`, string(got))
}

// TestProblemsOfTheGuards: client reads every problem of middleware.
func TestProblemsOfTheGuards(t *testing.T) {
	t.Parallel()
	w := httptest.NewRecorder()
	(&latch.Problem{Status: 409, Type: docs + "held", Title: "T", RetryAfter: time.Second}).ServeHTTP(w, nil)
	p, ok := client.ParseProblem(w.Result())
	require.True(t, ok)
	require.Equal(t, &client.Problem{Status: 409, Type: docs + "held", Title: "T", RetryAfter: time.Second}, p)
	require.Equal(t, "held", p.Kind())
	require.EqualError(t, p, "client: 409: T ("+docs+"held)")

	other := &client.Problem{Status: 409, Type: "https://example.com/problems#held"}
	require.Empty(t, other.Kind(), "a type of another server")
	require.EqualError(t, other, "client: 409: Conflict (https://example.com/problems#held)")
}

func FuzzParseProblem(f *testing.F) {
	f.Add("application/problem+json", []byte(`{"type":"`+docs+`held","title":"T","status":409}`), 409)
	f.Add("application/problem+json; charset=utf-8", []byte(`{"type":1}`), 503)
	f.Add("text/html", []byte(`<p>`), 500)
	f.Fuzz(func(t *testing.T, contentType string, body []byte, status int) {
		resp := response(contentType, bytes.NewReader(body))
		resp.StatusCode = status
		p, ok := client.ParseProblem(resp)
		if ok != (p != nil) {
			t.Fatal("ok without a problem, or the reverse")
		}
		if got, err := io.ReadAll(resp.Body); err != nil || !bytes.Equal(got, body) {
			t.Fatalf("the body is not put back: %q, %v", got, err)
		}
		if !ok {
			return
		}
		if p.Type == "" || p.Status != status || p.Error() == "" || !json.Valid(body) || len(body) > 64<<10 {
			t.Fatalf("%+v", p)
		}
		_ = p.Kind()
	})
}
