package latchtest

import (
	"context"
	"net/http"
	"net/http/httptest"
	"reflect"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/httplatch/httplatch/internal/guardkey"
	"github.com/httplatch/httplatch/internal/httpmethod"
)

// Coverage fails tb for each route of mux that has no guard of package middleware and no
// middleware.Refuse. Routes of safe methods, such as GET, need no guard. exceptions are the
// patterns, as they were registered, of other routes that need no guard. Coverage also fails tb
// for an exception that mux does not have, or that is guarded.
//
//	latchtest.Coverage(t, app.Routes(), signedIn, "POST /logout")
//
// newRequest makes a request to a route. The request must pass the middleware outside of the
// guard, authentication above all. If newRequest is nil, Coverage uses
// [httptest.NewRequestWithContext] without a body. The request ends at its guard, by a panic with
// [http.ErrAbortHandler], before the store or the handler is called. The handler of a route without a
// guard runs once, so the handler needs the same set-up as in your other tests. For a route without a
// method, Coverage sends POST. It replaces wildcards with the text "latch-coverage", which is also the
// request's Idempotency-Key if it has none.
//
// mux does not know the patterns of a router inside it: name the outer pattern as an exception,
// and call Coverage for the inner mux.
//
// net/http does not list the patterns of a mux, so Coverage reads them by reflection. It fails
// tb if it finds none, as with GODEBUG=httpmuxgo121=1.
func Coverage(tb testing.TB, mux *http.ServeMux, newRequest func(method, target string) *http.Request, exceptions ...string) {
	tb.Helper()
	if newRequest == nil {
		newRequest = func(method, target string) *http.Request {
			return httptest.NewRequestWithContext(tb.Context(), method, target, nil)
		}
	}
	patterns := patternsOf(reflect.ValueOf(mux).Elem().FieldByName("tree"), nil)
	if len(patterns) == 0 {
		tb.Errorf("latchtest.Coverage: no patterns were found in the mux")
	}
	slices.Sort(patterns)
	for _, pattern := range slices.Compact(patterns) {
		method, target := sampleOf(pattern)
		if method == "" {
			continue
		}
		guarded, status := reachesGuard(mux, newRequest(method, target))
		switch excepted := slices.Contains(exceptions, pattern); {
		case guarded && excepted:
			tb.Errorf("latchtest.Coverage: %q is an exception, and has a guard", pattern)
		case !guarded && !excepted:
			tb.Errorf("latchtest.Coverage: %q has no guard: %s %s was answered with %d and reached none. Guard it, mount middleware.Refuse, or name it as an exception. If the answer is from your authentication, let newRequest sign in", pattern, method, target, status)
		}
	}
	for _, e := range exceptions {
		if !slices.Contains(patterns, e) {
			tb.Errorf("latchtest.Coverage: the exception %q is no pattern of the mux", e)
		}
	}
}

// question is the context of a request that ends at its first guard.
type question struct {
	context.Context //nolint:containedctx // it is one

	guarded atomic.Bool
}

// Value notices a guard by its question for the guard further out.
func (q *question) Value(key any) any {
	if key == (guardkey.Outer{}) {
		q.guarded.Store(true)
		panic(http.ErrAbortHandler)
	}
	return q.Context.Value(key)
}

// reachesGuard sends r to h, and returns the status of the answer. A panic of a handler counts as
// 500, as it does in a server. Refuse is noticed by its refusal of the key.
func reachesGuard(h http.Handler, r *http.Request) (guarded bool, status int) {
	q := &question{Context: r.Context()}
	if r.Header.Get("Idempotency-Key") == "" {
		r.Header.Set("Idempotency-Key", sampleValue)
	}
	r.Header.Del("Sec-Fetch-Mode") // Refuse lets a form of a browser pass
	w := httptest.NewRecorder()
	func() {
		defer func() {
			if recover() != nil {
				w.Code = http.StatusInternalServerError
			}
		}()
		h.ServeHTTP(w, r.WithContext(q))
	}()
	return q.guarded.Load() || w.Header().Get("Latch-Problem") == "key-not-supported", w.Code
}

// sampleValue stands for each wildcard of a pattern.
const sampleValue = "latch-coverage"

// sampleOf returns a request that a pattern matches. method is "" if it needs no guard.
func sampleOf(pattern string) (method, target string) {
	method, rest, has := strings.Cut(pattern, " ")
	if !has {
		method, rest = http.MethodPost, pattern
	}
	if httpmethod.Safe(method) {
		return "", ""
	}
	host, path, _ := strings.Cut(strings.TrimLeft(rest, " \t"), "/")
	segments := strings.Split(path, "/")
	for i, s := range segments {
		switch {
		case s == "{$}":
			segments[i] = ""
		case strings.HasPrefix(s, "{"):
			segments[i] = sampleValue
		}
	}
	target = "/" + strings.Join(segments, "/")
	if host != "" {
		target = "http://" + host + target
	}
	return method, target
}

// patternsOf appends the patterns of a node of the mux, and of the nodes below it. It finds none in
// a mux of another structure.
func patternsOf(node reflect.Value, patterns []string) []string {
	if node.Kind() == reflect.Pointer {
		node = node.Elem()
	}
	if node.Kind() != reflect.Struct {
		return patterns
	}
	if p := node.FieldByName("pattern"); p.Kind() == reflect.Pointer && !p.IsNil() {
		if text := p.Elem().FieldByName("str"); text.Kind() == reflect.String {
			patterns = append(patterns, text.String())
		}
	}
	for _, child := range []string{"multiChild", "emptyChild"} {
		patterns = patternsOf(node.FieldByName(child), patterns)
	}
	children := node.FieldByName("children")
	if children.Kind() != reflect.Struct {
		return patterns
	}
	if few := children.FieldByName("s"); few.Kind() == reflect.Slice {
		for i := range few.Len() {
			patterns = patternsOf(few.Index(i).FieldByName("value"), patterns)
		}
	}
	if many := children.FieldByName("m"); many.Kind() == reflect.Map {
		for _, key := range many.MapKeys() {
			patterns = patternsOf(many.MapIndex(key), patterns)
		}
	}
	return patterns
}
