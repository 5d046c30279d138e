package middleware_test

import (
	"fmt"
	"net/http"
	"os"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/httplatch/httplatch/keyfunc"
	"github.com/httplatch/httplatch/lock"
	"github.com/httplatch/httplatch/lock/memstore"
	latch "github.com/httplatch/httplatch/middleware"
)

// TestProblemTypesAreDescribed compares the kinds with the sections of the page that their URIs
// lead to, and with the statuses and the Retry-After of its table.
func TestProblemTypesAreDescribed(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("../docs/problems.md")
	require.NoError(t, err)
	var described, used []string
	for _, m := range regexp.MustCompile(`(?m)^## (.*)$`).FindAllStringSubmatch(string(page), -1) {
		described = append(described, m[1])
	}
	table := map[string]string{}
	for _, m := range regexp.MustCompile("(?m)^\\| \\[`([a-z-]+)`\\]\\(#[a-z-]+\\) \\| ([0-9]+)[^|]*\\| (1?)").FindAllStringSubmatch(string(page), -1) {
		table[m[1]] = m[2] + " " + m[3]
	}
	for _, p := range refusals(t) {
		name, retryAfter := string(p.Kind()), ""
		if p.RetryAfter > 0 {
			retryAfter = strconv.Itoa(int(p.RetryAfter / time.Second))
		}
		used = append(used, name)
		// Else GitHub would make another anchor of the heading.
		require.Regexp(t, "^[a-z-]+$", name)
		require.Equal(t, table[name], fmt.Sprint(p.Status, " ", retryAfter), "docs/problems.md: %s in the first table", name)
	}
	require.ElementsMatch(t, described, used, "the sections of docs/problems.md, and problemkind.go")
}

func TestErrorHandler(t *testing.T) {
	t.Parallel()
	l := newLocker(t, memstore.New())
	hold(t, l)
	var got *latch.Problem
	h := latch.Lock(l, "user", byUser, latch.WithErrorHandler(func(w http.ResponseWriter, r *http.Request, p *latch.Problem) {
		got = p
		if p.Status != http.StatusConflict {
			p.ServeHTTP(w, r)
			return
		}
		w.WriteHeader(http.StatusSeeOther)
	}))(mustNotRun(t))

	w := serve(h, post("42"))
	require.Equal(t, http.StatusSeeOther, w.Code)
	require.Equal(t, http.Header{"Latch-Problem": {"held"}, "Cache-Control": {"no-store"}, "Retry-After": {"1"}}, w.Header())
	require.Empty(t, w.Body.String())
	require.ErrorIs(t, got.Err, lock.ErrHeld)
	require.Equal(t, time.Second, got.RetryAfter)

	requireProblem(t, wantProblem{status: 400, kind: "key-missing"}, serve(h, post("")))
	require.ErrorIs(t, got.Err, keyfunc.ErrMissing)
}

func TestProblemSendsItself(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name       string
		problem    latch.Problem
		status     int
		retryAfter string
		body       string
	}{
		{
			"whole",
			latch.Problem{Status: 409, Type: "https://example.com/a", Title: "Taken.", RetryAfter: 1500 * time.Millisecond},
			409, "2", `{"type":"https://example.com/a","title":"Taken.","status":409}`,
		},
		{
			"what JSON escapes",
			latch.Problem{Status: 409, Type: "a?b=c&d", Title: "\"<\\\n\x7fö\u2028\xff\xff\ufffd"},
			409, "", `{"type":"a?b=c\u0026d","title":"\"\u003c\\\n` + "\x7fö" + `\u2028` + "\ufffd\ufffd\ufffd" + `","status":409}`,
		},
		{
			"with a detail",
			latch.Problem{Status: 400, Type: "a", Title: "Bad.", Detail: "The header \"X\" is missing."},
			400, "", `{"type":"a","title":"Bad.","detail":"The header \"X\" is missing.","status":400}`,
		},
		{"status only", latch.Problem{Status: 404}, 404, "", `{"status":404}`},
		{"zero", latch.Problem{}, 500, "", `{"status":500}`},
		{"not a failure", latch.Problem{Status: 204}, 500, "", `{"status":500}`},
		{"less than a second", latch.Problem{Status: 503, RetryAfter: time.Nanosecond}, 503, "1", `{"status":503}`},
	}
	for _, tt := range tests {
		w := serve(&tt.problem, post(""))
		require.Equal(t, tt.status, w.Code, tt.name)
		require.Equal(t, tt.retryAfter, w.Header().Get("Retry-After"), tt.name)
		require.Equal(t, "application/problem+json", w.Header().Get("Content-Type"), tt.name)
		require.Equal(t, tt.body, strings.TrimSuffix(w.Body.String(), "\n"), tt.name)
	}
}

// TestProblemKindAndDetail: the detail of a key function is sent, and a handler of errors
// distinguishes refusals by a constant.
func TestProblemKindAndDetail(t *testing.T) {
	t.Parallel()
	l := newLocker(t, memstore.New())
	var got *latch.Problem
	h := latch.Idempotent(l, byUser, keyfunc.IdempotencyKey, latch.WithErrorHandler(func(w http.ResponseWriter, r *http.Request, p *latch.Problem) {
		got = p
		p.ServeHTTP(w, r)
	}))(mustNotRun(t))
	w := serve(h, post("42"))
	require.Equal(t, latch.ProblemKeyMissing, got.Kind())
	require.Contains(t, w.Body.String(), `"detail":"The header Idempotency-Key is missing."`)

	r := post("42")
	r.Header.Set("Idempotency-Key", strings.Repeat("x", 300))
	w = serve(h, r)
	require.Equal(t, latch.ProblemKeyInvalid, got.Kind())
	require.Contains(t, w.Body.String(), `"detail":"The header Idempotency-Key is over 255 bytes long."`)

	require.Empty(t, (&latch.Problem{Type: "https://example.com/problems#held"}).Kind())
	require.Empty(t, (&latch.Problem{}).Kind())
}
