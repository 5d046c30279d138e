package middleware_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"go/format"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/httplatch/httplatch/internal/testkit/must"
	"github.com/httplatch/httplatch/internal/testkit/parallel"
	"github.com/httplatch/httplatch/keyfunc"
	"github.com/httplatch/httplatch/lock"
	"github.com/httplatch/httplatch/lock/memstore"
	latch "github.com/httplatch/httplatch/middleware"
)

// TestProblemTypesAreDescribed compares the kinds with the sections of the page that their URIs
// lead to, and with the statuses and the Retry-After of its table.
func TestProblemTypesAreDescribed(t *testing.T) {
	t.Parallel()
	page := must.Get(os.ReadFile("../docs/problems.md"))(t)
	var described, used []string
	for _, m := range regexp.MustCompile(`(?m)^## (.*)$`).FindAllStringSubmatch(string(page), -1) {
		described = append(described, m[1])
	}
	for _, p := range refusals(t) {
		name, wait := string(p.Kind()), "[a-z]"
		if p.RetryAfter > 0 {
			wait = fmt.Sprint(p.RetryAfter.Seconds())
		}
		used = append(used, name)
		// Else GitHub would make another anchor of the heading.
		require.Regexp(t, "^[a-z-]+$", name)
		require.Regexp(t, fmt.Sprintf("(?m)^\\| \\[`%s`\\]\\(#%[1]s\\) \\| %d[^|]*\\| %s", name, p.Status, wait), string(page), "docs/problems.md, first table")
	}
	require.ElementsMatch(t, described, used, "the sections of docs/problems.md, and problemkind.go")
}

// TestErrorHandler: a handler of errors distinguishes refusals by a constant, and may fall back to the default.
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

	w = serve(h, post(""))
	requireProblem(t, wantProblem{status: 400, kind: "key-missing"}, w)
	require.ErrorIs(t, got.Err, keyfunc.ErrMissing)
	require.Equal(t, latch.ProblemKeyMissing, got.Kind())
	require.Contains(t, w.Body.String(), `"detail":"The header X-User-ID is missing."`)
	require.Empty(t, (&latch.Problem{Type: "https://example.com/problems#held"}).Kind())
}

func TestProblemSendsItself(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
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
			latch.Problem{Status: 400, Type: "a", Title: "Bad.", Detail: "The header X\nis missing."},
			400, "", `{"type":"a","title":"Bad.","detail":"The header X\nis missing.","status":400}`,
		},
		{"status only", latch.Problem{Status: 404}, 404, "", `{"status":404}`},
		{"zero", latch.Problem{}, 500, "", `{"status":500}`},
		{"not a failure", latch.Problem{Status: 204}, 500, "", `{"status":500}`},
		{"less than a second", latch.Problem{Status: 503, RetryAfter: time.Nanosecond}, 503, "1", `{"status":503}`},
	} {
		w := serve(&tt.problem, post(""))
		require.Equal(t, tt.status, w.Code, tt.name)
		require.Equal(t, tt.retryAfter, w.Header().Get("Retry-After"), tt.name)
		require.Equal(t, "application/problem+json", w.Header().Get("Content-Type"), tt.name)
		require.Equal(t, tt.body, strings.TrimSuffix(w.Body.String(), "\n"), tt.name)
	}
}

// TestGoldenKinds: package client and the scripts of browsers have each kind, with the reaction of its row.
func TestGoldenKinds(t *testing.T) {
	t.Parallel()
	var repeats string
	groups := map[[2]bool]string{} // by what is sent again, and what ends its key
	for _, p := range refusals(t) {
		again, endsKey := p.Kind().Reaction()
		repeats += fmt.Sprintf("\t%q: %v,\n", p.Kind(), again)
		groups[[2]bool{again, endsKey || !again && p.Status == 400}] += "|" + string(p.Kind())
	}
	for path, line := range map[string]string{
		"../client/verdict.go": "var repeats = map[string]bool{\n" + repeats + "}",
		"../js/repeat.js":      "const kinds = /^(?:(" + groups[[2]bool{true, false}][1:] + ")|(" + groups[[2]bool{false, true}][1:] + ")" + groups[[2]bool{}] + ")$/;",
	} {
		start, _, _ := strings.Cut(line, "= ")
		source, old := must.Get(os.ReadFile(path))(t), regexp.MustCompile("(?ms)^"+start+"= .*?[;}]$")
		require.Regexp(t, old, string(source))
		text := old.ReplaceAllLiteralString(string(source), line)
		if path == "../client/verdict.go" {
			text = string(must.Get(format.Source([]byte(text)))(t))
		}
		golden(t, path, text)
	}
}

// TestGoldenOpenAPI: docs/openapi.yaml has each refusal of the table in docs/problems.md.
func TestGoldenOpenAPI(t *testing.T) {
	t.Parallel()
	head, _, found := strings.Cut(string(must.Get(os.ReadFile("../docs/openapi.yaml"))(t)), "  responses:\n")
	require.True(t, found)
	problems := must.Get(os.ReadFile("../docs/problems.md"))(t)
	kinds := make(map[int][]latch.ProblemKind)
	var statuses []int
	number := regexp.MustCompile(`\d{3}`)
	for _, row := range regexp.MustCompile("(?m)^\\| \\[`([a-z-]+)`\\].*?\\| ([^|]*) \\|").FindAllStringSubmatch(string(problems), -1) {
		for _, status := range number.FindAllString(row[2], -1) {
			n := must.Get(strconv.Atoi(status))(t)
			if kinds[n] == nil {
				statuses = append(statuses, n)
			}
			kinds[n] = append(kinds[n], latch.ProblemKind(row[1]))
		}
	}
	slices.Sort(statuses)
	text := head + "  responses:\n"
	for _, status := range statuses {
		text += fmt.Sprintf("    Refused%d:\n      description: |-\n", status)
		types := make([]string, len(kinds[status]))
		for i, k := range kinds[status] {
			text += fmt.Sprintf("        %s: %s\n", k, k.Problem().Title)
			types[i] = k.Problem().Type
		}
		text += "      headers:\n        Latch-Problem: {$ref: \"#/components/headers/LatchProblem\"}\n"
		again := func(k latch.ProblemKind) bool { return k.Problem().RetryAfter > 0 }
		if slices.ContainsFunc(kinds[status], again) && status != http.StatusInternalServerError {
			text += "        Retry-After: {$ref: \"#/components/headers/RetryAfter\"}\n"
		}
		text += "      content:\n        application/problem+json:\n          schema:\n            allOf:\n" +
			"              - {$ref: \"#/components/schemas/Refusal\"}\n              - type: object\n                properties:\n" +
			"                  type:\n                    enum:\n                      - " + strings.Join(types, "\n                      - ") + "\n"
	}
	golden(t, "../docs/openapi.yaml", text)
}

// An error handler may show the form again, so it finds the request as the handler would have, whatever has read it before.
func TestErrorHandlerCanReadTheBody(t *testing.T) {
	t.Parallel()
	const body = `{"sku":"x","n":12345}`
	small := latch.WithBodyLimits(10, 10)
	for name, tt := range map[string]struct {
		status  int
		down    bool
		key     keyfunc.Func
		opts    []latch.IdempotentOption
		handler http.HandlerFunc // nil: it does not run
	}{
		"unavailable": {status: 503, down: true, key: keyfunc.IdempotencyKey},
		"missing":     {status: 400, key: func(*http.Request) (string, error) { return "", keyfunc.ErrMissing }},
		"invalid":     {status: 400, key: keyfunc.JSON("/n/x")},
		"too large":   {status: 413, key: keyfunc.IdempotencyKey, opts: []latch.IdempotentOption{small}},
		"lost, and read": {status: 409, key: keyfunc.IdempotencyKey, handler: func(_ http.ResponseWriter, r *http.Request) {
			_, _ = io.Copy(io.Discard, r.Body)
			_ = r.Body.Close()
			<-r.Context().Done()
		}},
	} {
		for _, chunked := range []bool{false, true} {
			inBubble(t, fmt.Sprint(name, ", chunked: ", chunked), func(t *testing.T) {
				store := &mortalStore{Store: &stubStore{Store: memstore.New()}}
				if tt.down {
					store.Store = unreachable()
				}
				l := lock.New(store, lock.WithLogger(quiet))
				defer func() { store.Dead.Store(false); end(l) }()
				handler := mustNotRun(t)
				if tt.handler != nil {
					handler = func(w http.ResponseWriter, r *http.Request) { store.Dead.Store(true); tt.handler(w, r) }
				}
				var read []byte
				h := latch.Idempotent(l, byUser, tt.key, append(tt.opts, latch.WithErrorHandler(func(w http.ResponseWriter, r *http.Request, p *latch.Problem) {
					require.NoError(t, r.Context().Err())
					read = must.Get(io.ReadAll(r.Body))(t)
					p.ServeHTTP(w, r)
				}))...)(handler)
				w := serve(h, typed("application/json", body, chunked))
				require.Equal(t, tt.status, w.Code, w.Body)
				require.Equal(t, body, string(read))
			})
		}
	}
}

// TestKeyErrorCarriesHeaders: a 401 without WWW-Authenticate is none.
func TestKeyErrorCarriesHeaders(t *testing.T) {
	t.Parallel()
	own := &keyfunc.Error{Status: 401, Header: http.Header{
		"Www-Authenticate": {`Bearer realm="orders"`, "Basic"}, "x-lower": {"1"}, "Cache-Control": {"public"}, "Content-Type": {"text/html"},
	}}
	fails := func(*http.Request) (string, error) { return "", own }
	l := newLocker(t, memstore.New())
	for name, guard := range map[string]func(http.Handler) http.Handler{
		"Lock":           latch.Lock(l, "user", fails),
		"Idempotent key": latch.Idempotent(l, byUser, keyfunc.Hash(keyfunc.Join(fails))),
		"Dedupe":         latch.Dedupe(l, keyfunc.Optional(fails), time.Hour),
		"fingerprint":    once(l, latch.WithFingerprint(fails)),
		"own error handler": latch.Lock(l, "user", fails, latch.WithErrorHandler(func(w http.ResponseWriter, r *http.Request, p *latch.Problem) {
			p.Header.Set("X-Lower", "1")
			p.ServeHTTP(w, r)
		})),
	} {
		w := serve(guard(mustNotRun(t)), keyed("k"))
		require.Equal(t, 401, w.Code, name)
		require.Equal(t, http.Header{
			"Www-Authenticate": {`Bearer realm="orders"`, "Basic"}, "X-Lower": {"1"}, "Cache-Control": {"no-store"}, "Content-Type": {"application/problem+json"},
			"Latch-Problem": {"unauthenticated"}, "Vary": {"Accept"},
		}, w.Header(), name)
	}
	require.Len(t, own.Header, 4, "the error belongs to the key function")
}

// Headers that a key function has copied from an answer of its upstream, say, frame that one's body and not ours.
func TestKeyErrorDoesNotFrameTheBody(t *testing.T) {
	t.Parallel()
	own := &keyfunc.Error{Status: 403, Header: http.Header{"content-length": {"3"}, "Transfer-Encoding": {"identity"}, "X-Reason": {"1"}, "Retry-After": {"30"}}}
	fails := func(*http.Request) (string, error) { return "", own }
	answer := over(t, startServer(t, latch.Lock(newLocker(t, memstore.New()), "user", fails)(mustNotRun(t))), post("42"))
	require.Equal(t, 403, answer.status)
	require.Equal(t, "1", answer.header.Get("X-Reason"))
	require.JSONEq(t, `{"title":"Forbidden","status":403}`, string(answer.body))
	require.Equal(t, 30*time.Second, latch.ProblemOf(own).RetryAfter, "pages show it, too")
}

func TestPlainKeyErrorIsTheServersFault(t *testing.T) {
	for name, tt := range map[string]struct {
		guard func(l *lock.Locker, f keyfunc.Func) guardFunc
		label string
	}{
		"key of Lock":        {func(l *lock.Locker, f keyfunc.Func) guardFunc { return latch.Lock(l, "lock", keyfunc.Join(f)) }, "lock"},
		"key of Idempotent":  {func(l *lock.Locker, f keyfunc.Func) guardFunc { return latch.Idempotent(l, byUser, keyfunc.Hash(f)) }, "idempotent"},
		"scope of Dedupe":    {func(l *lock.Locker, f keyfunc.Func) guardFunc { return latch.Dedupe(l, keyfunc.Optional(f), time.Hour) }, "dedupe"},
		"with a fingerprint": {func(l *lock.Locker, f keyfunc.Func) guardFunc { return once(l, latch.WithFingerprint(f)) }, "idempotent"},
	} {
		t.Run(name, func(t *testing.T) {
			var out bytes.Buffer
			synctest.Test(t, func(t *testing.T) {
				l := lock.New(memstore.New(), logging(&out))
				defer end(l)
				h := tt.guard(l, func(*http.Request) (string, error) { return "", errors.New("no session store") })(mustNotRun(t))
				requireLine := func(repeated int) {
					t.Helper()
					var line struct {
						Level, Name, Error string
						Repeated           int
					}
					require.NoError(t, json.Unmarshal(out.Bytes(), &line), "exactly one line: %s", out.String())
					require.Equal(t, "ERROR", line.Level)
					require.Equal(t, tt.label, line.Name)
					require.Equal(t, "no session store", line.Error)
					require.Equal(t, repeated, line.Repeated)
					out.Reset()
				}
				for range 3 {
					requireProblem(t, wantProblem{status: 500, kind: "key-failed"}, serve(h, keyed("k")))
				}
				requireLine(0)
				time.Sleep(time.Minute)
				requireProblem(t, wantProblem{status: 500, kind: "key-failed"}, serve(h, keyed("k")))
				requireLine(2)
				time.Sleep(time.Minute)

				// A client that has gone is no failure.
				require.Equal(t, 500, serve(h, keyed("k").WithContext(canceled(t))).Code)
				require.Empty(t, out.String())
			})
		})
	}
}

func TestErrorHandlerPanics(t *testing.T) {
	l := newLocker(t, memstore.New())
	var e effects
	boom := latch.WithErrorHandler(func(http.ResponseWriter, *http.Request, *latch.Problem) { panic("boom") })
	h := once(l, boom)(latch.Lock(l, "user", byUser, boom)(http.HandlerFunc(e.answer)))
	lease := must.Get(l.Acquire(t.Context(), lock.Key("user", "42")))(t)
	require.PanicsWithValue(t, "boom", func() { serve(h, keyed("k")) })
	require.NoError(t, lease.Release(t.Context()))
	require.Equal(t, 201, serve(h, keyed("k")).Code)
	e.require(t, 1)
}

// The log says which key is missing and the cure for that one, once, and blames no other function.
func TestHintNamesTheMissingKey(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		key  keyfunc.Func
		want string
	}{
		"PathValue":      {keyfunc.PathValue("id"), "path value id is missing; mount the guard on a route that has it, not around the router"},
		"Context":        {keyfunc.Context(func(context.Context) string { return "" }), "context value is missing; authenticate, and mount the authentication outside"},
		"JSON":           {keyfunc.JSON("/order/id"), "JSON value /order/id is missing; send it in the body"},
		"Form":           {keyfunc.Form("once"), "form field once is missing; send it in the body, as a form"},
		"Query":          {keyfunc.Query("id"), "query parameter id is missing; send it in the URL"},
		"Header":         {keyfunc.Header("X-User-ID"), "header X-User-ID is missing; let the gateway set it"},
		"IdempotencyKey": {keyfunc.IdempotencyKey, "header Idempotency-Key is missing; send one that is new"},
		"a join":         {keyfunc.Join(keyfunc.Global, keyfunc.Hash(keyfunc.JSON("/id"))), "JSON value /id is missing; send it in the body"},
		"their own":      {func(*http.Request) (string, error) { return "", nil }, "keyfunc: the request has no key"},
	} {
		for kind, guard := range map[string]func(l *lock.Locker) guardFunc{
			"lock":       func(l *lock.Locker) guardFunc { return latch.Lock(l, "order", tt.key) },
			"idempotent": func(l *lock.Locker) guardFunc { return latch.Idempotent(l, keyfunc.Global, tt.key) },
		} {
			parallel.Run(t, name+", "+kind, func(t *testing.T) {
				var logged bytes.Buffer
				h := guard(newLocker(t, memstore.New(), lock.WithLogger(slog.New(slog.NewTextHandler(&logged, nil)))))(mustNotRun(t))
				for range 2 {
					r := httptest.NewRequest(http.MethodPost, "/orders/7", strings.NewReader(`{"order":{}}`))
					r.Header.Set("Content-Type", "application/json")
					serve(h, r)
				}
				require.Equal(t, 1, strings.Count(logged.String(), "\n"), "logged once: %s", &logged)
				require.Contains(t, logged.String(), "level=WARN")
				require.Contains(t, logged.String(), tt.want)
				for _, other := range []string{"PathValue", "Context", "router", "authentication"} {
					if !strings.Contains(tt.want, other) {
						require.NotContains(t, logged.String(), other)
					}
				}
			})
		}
	}
}
