package client_test

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/httplatch/httplatch/client"
	"github.com/httplatch/httplatch/internal/testkit/must"
	"github.com/httplatch/httplatch/internal/testkit/parallel"
)

// refused is a problem that a client gets, and whether it sends its request again.
type refused struct {
	kind   string
	status int
	again  bool
}

// documented are the problems in the first table of docs/problems.md.
func documented(t *testing.T) (all []refused) {
	t.Helper()
	page := must.Get(os.ReadFile("../docs/problems.md"))(t)
	for _, m := range regexp.MustCompile("(?m)^\\| \\[`([a-z-]+)`\\]\\(#[a-z-]+\\) \\| ([0-9]+)[^|]*\\|[^|]*\\| (yes)?").FindAllStringSubmatch(string(page), -1) {
		all = append(all, refused{m[1], must.Get(strconv.Atoi(m[2]))(t), m[3] != ""})
	}
	require.NotEmpty(t, all)
	return all
}

// kinds are the documented problems, each also with a status that would decide otherwise, except rolled-back.
func kinds(t *testing.T) (all []refused) {
	t.Helper()
	all = documented(t)
	for _, p := range all {
		if p.kind != "rolled-back" {
			all = append(all, refused{p.kind, map[bool]int{true: 400, false: 503}[p.again], p.again})
		}
	}
	return append(all, refused{"rolled-back", 500, false}, refused{"of-a-later-version", 409, false}, refused{"of-a-later-version", 503, true})
}

var retriedStatuses = map[int]bool{408: true, 425: true, 429: true, 502: true, 503: true, 504: true}

// send sends one request to a base that answers the first attempt with first and all
// others with 201, and returns how often it was sent, and its answer.
func send(t *testing.T, method string, first func() *http.Response, opts ...client.Option) (int, *http.Response) {
	t.Helper()
	b := then(first, created)
	resp := must.Get(client.Transport(b, opts...).RoundTrip(request(t.Context(), t, method, "")))(t)
	require.Equal(t, len(b.sent), client.Attempts(resp))
	for _, s := range b.sent {
		require.Equal(t, keyIn(b.sent[0].request), keyIn(s.request), "one key for all attempts")
	}
	return len(b.sent), resp
}

// TestProblems: the type in the body, or the header over any other body, decides.
func TestProblems(t *testing.T) {
	parallel.Bubble(t, func(t *testing.T) {
		for _, tt := range kinds(t) {
			for format, first := range map[string]func() *http.Response{
				"its type":                       problem(tt.status, tt.kind, "Retry-After: 1"),
				"its header":                     answer(tt.status, "\x1f\x8b", "Latch-Problem: "+tt.kind, "Content-Encoding: gzip", "Content-Type: text/html", "Retry-After: 1"),
				"both":                           problem(tt.status, tt.kind, "Latch-Problem: "+tt.kind, "Retry-After: 1"),
				"a header that it does not know": problem(tt.status, tt.kind, "Latch-Problem: refused", "Retry-After: 1"),
			} {
				name := fmt.Sprint(tt.status, " ", tt.kind, " by ", format)
				n, resp := send(t, http.MethodPost, first)
				if tt.again {
					require.Equal(t, 2, n, name)
					require.Equal(t, 201, resp.StatusCode, name)
					continue
				}
				require.Equal(t, 1, n, name)
				require.Equal(t, bodyOf(t, first()), bodyOf(t, resp), "%s: the refusal is the caller's to read", name)
			}
		}
		n, _ := send(t, http.MethodPost, answer(202, "", "Latch-Problem: in-progress"))
		require.Equal(t, 1, n, "a success")
	})
}

func TestStatuses(t *testing.T) {
	parallel.Bubble(t, func(t *testing.T) {
		for status := 200; status < 600; status++ {
			for _, contentType := range []string{"text/html", "application/problem+json"} {
				n, resp := send(t, http.MethodPost, answer(status, `{"type":"https://other.example/held"}`, "Content-Type: "+contentType))
				if retriedStatuses[status] {
					require.Equal(t, 2, n, "%d %s", status, contentType)
				} else {
					require.Equal(t, 1, n, "%d %s", status, contentType)
					require.Equal(t, status, resp.StatusCode)
				}
			}
		}
	})
}

func TestStripeShouldRetry(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name  string
		first func() *http.Response
		again bool
	}{
		{"409, another request with the key runs", answer(409, "", "Stripe-Should-Retry: true"), true},
		{"500, and it says so", answer(500, "", "Stripe-Should-Retry: true"), true},
		{"500", answer(500, "", "Stripe-Should-Retry: false"), false},
		{"503, and it says not to", answer(503, "", "Stripe-Should-Retry: false"), false},
		{"429, and it says not to", answer(429, "", "Stripe-Should-Retry: false"), false},
		{"a value that it does not send", answer(503, "", "Stripe-Should-Retry: maybe"), true},
		{"a success", answer(200, "", "Stripe-Should-Retry: true"), false},
		{"a problem that is final comes first", problem(409, "outcome-unknown", "Stripe-Should-Retry: true"), false},
		{"a problem that is not comes first", problem(409, "in-progress", "Stripe-Should-Retry: false"), true},
	}
	synctest.Test(t, func(t *testing.T) {
		for _, tt := range tests {
			n, _ := send(t, http.MethodPost, tt.first)
			require.Equal(t, tt.again, n == 2, tt.name)
		}
	})
}

// TestMethods: which methods get a key, and which are sent again without one.
func TestMethods(t *testing.T) {
	t.Parallel()
	tests := []struct {
		methods        string
		key            bool
		again, keyless int // how often it is sent, and how often without a key
	}{
		{" GET HEAD OPTIONS TRACE QUERY PROPFIND REPORT SEARCH", false, 2, 2}, // "" is GET
		{"CONNECT", false, 1, 1},
		{"PUT DELETE", true, 2, 2},
		{"POST PATCH PURGE", true, 2, 1},
	}
	failures := map[string]func(n int) (*http.Response, error){
		"503":   func(int) (*http.Response, error) { return answer(503, "")(), nil },
		"error": func(int) (*http.Response, error) { return nil, io.ErrUnexpectedEOF },
	}
	synctest.Test(t, func(t *testing.T) {
		for _, tt := range tests {
			for method := range strings.SplitSeq(tt.methods, " ") {
				for name, fail := range failures {
					for _, keyless := range []bool{false, true} {
						b := &base{answer: func(n int, _ *http.Request) (*http.Response, error) {
							if n == 1 {
								return fail(n)
							}
							return created(), nil
						}}
						ctx, want := t.Context(), tt.again
						if keyless {
							ctx, want = client.WithKey(ctx, ""), tt.keyless
						}
						req := request(ctx, t, http.MethodPost, "")
						req.Method = method
						_, _ = client.Transport(b).RoundTrip(req)
						require.Len(t, b.sent, want, "%s after %s, keyless: %v", method, name, keyless)
						require.Equal(t, tt.key && !keyless, keyIn(b.sent[0].request) != "", method)
					}
				}
			}
		}
	})
}

func TestErrors(t *testing.T) {
	t.Parallel()
	certificate := &tls.CertificateVerificationError{Err: errors.New("unknown authority")}
	tests := []struct {
		err   error
		again bool
	}{
		{io.EOF, true},
		{io.ErrUnexpectedEOF, true},
		{errors.New("http: server closed idle connection"), true},
		{&url.Error{Op: "Post", Err: os.ErrDeadlineExceeded}, true},
		{context.DeadlineExceeded, true}, // of the base, such as ResponseHeaderTimeout
		{certificate, false},
		{fmt.Errorf("remote: %w", certificate), false},
		{tls.RecordHeaderError{Msg: "first record does not look like a TLS handshake"}, false},
		{http.ErrSchemeMismatch, false},
		{errors.New(`net/http: invalid header field value for "X"`), false},
	}
	synctest.Test(t, func(t *testing.T) {
		for _, tt := range tests {
			b := &base{answer: func(n int, _ *http.Request) (*http.Response, error) {
				if n == 1 {
					return nil, tt.err
				}
				return created(), nil
			}}
			resp, err := client.Transport(b).RoundTrip(request(t.Context(), t, http.MethodPost, "tea"))
			if tt.again {
				require.NoError(t, err, tt.err.Error())
				require.Equal(t, 2, client.Attempts(resp))
				continue
			}
			require.Len(t, b.sent, 1, tt.err.Error())
			require.Equal(t, tt.err, err, "an error comes as it is")
		}
	})
}

// This version of net/http has the text by which its permanent errors are recognised.
func TestInvalidHeader(t *testing.T) {
	t.Parallel()
	for _, spoil := range []func(*http.Request){
		func(r *http.Request) { r.Header.Set("X", "a\nb") },
		func(r *http.Request) { r.Header.Set("a b", "c") },
		func(r *http.Request) { r.Method = "P ST" },
	} {
		n := 0
		rt := client.Transport(&http.Transport{}, client.WithHook(func(client.Attempt) { n++ }))
		req := request(t.Context(), t, http.MethodPost, "")
		spoil(req)
		_, err := rt.RoundTrip(req)
		require.ErrorContains(t, err, "invalid")
		require.Equal(t, 1, n, err.Error())
	}
}

// An order that takes longer than all attempts together gets its answer, and costs neither attempts nor budget.
func TestInProgressIsWaitedFor(t *testing.T) {
	parallel.Bubble(t, func(t *testing.T) {
		began := time.Now()
		running := problem(409, "in-progress", "Retry-After: 1")
		b := &base{answer: func(int, *http.Request) (*http.Response, error) {
			if time.Since(began) < 40*time.Second {
				return running(), nil
			}
			return created(), nil
		}}
		rt := client.Transport(b, client.WithBudget(0, 0), client.WithAttempts(2))
		resp := must.Get(rt.RoundTrip(request(t.Context(), t, http.MethodPost, "tea")))(t)
		require.Equal(t, "order 1", bodyOf(t, resp))
		require.Greater(t, client.Attempts(resp), 4)
		require.Less(t, client.Attempts(resp), 20, "the pauses grow")

		// Not longer than WithMaxWait: the refusal is returned then.
		start := time.Now()
		began = start.Add(time.Hour)
		resp = must.Get(rt.RoundTrip(request(t.Context(), t, http.MethodPost, "tea")))(t)
		p, ok := client.ParseProblem(resp)
		require.True(t, ok)
		require.Equal(t, "in-progress", p.Kind())
		require.LessOrEqual(t, time.Since(start), time.Minute)
		require.Greater(t, time.Since(start), 50*time.Second)
		require.True(t, strings.HasPrefix(p.Error(), "client: 409: A title. (https://"))

		// With one attempt, nothing is sent again.
		n, _ := send(t, http.MethodPost, running, client.WithAttempts(1))
		require.Equal(t, 1, n)
	})
}

// A 409 with JSON is in-progress only by the codes that say so, and its body is there afterwards.
func TestConflictsOfOthers(t *testing.T) {
	t.Parallel()
	for body, again := range map[string]bool{
		`{"type":"invalid_request","code":"idempotency_in_flight","message":"m"}`: true,
		`{"error":{"code":"idempotency_key_in_use"}}`:                             true,
		`{"code":"idempotency_conflict"}`:                                         false,
		`{"code":["idempotency_in_flight"]}`:                                      false,
		`{"message":"idempotency_in_flight"}`:                                     false,
		`["idempotency_in_flight"]`:                                               false,
		`idempotency_in_flight`:                                                   false,
		``:                                                                        false,
	} {
		conflict := answer(409, body, "Content-Type: application/json; charset=utf-8", "Retry-After: 1")
		synctest.Test(t, func(t *testing.T) {
			b := then(conflict, created)
			resp := must.Get(client.Transport(b).RoundTrip(request(t.Context(), t, http.MethodPost, "tea")))(t)
			require.Equal(t, again, len(b.sent) == 2, body)
			if !again {
				require.Equal(t, body, bodyOf(t, resp))
			}
		})
		b := then(answer(422, body, "Content-Type: application/json"), created)
		must.Get(client.Transport(b).RoundTrip(request(t.Context(), t, http.MethodPost, "tea")))(t)
		require.Len(t, b.sent, 1, "another status")
	}
}
