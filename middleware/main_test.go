package middleware_test

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/httplatch/httplatch/internal/testkit/guardtest"
	"github.com/httplatch/httplatch/internal/testkit/must"
	"github.com/httplatch/httplatch/internal/testkit/parallel"
	"github.com/httplatch/httplatch/internal/testkit/redistest"
	"github.com/httplatch/httplatch/lock"
	"github.com/httplatch/httplatch/lock/memstore"
)

func TestMain(m *testing.M) {
	slog.SetDefault(slog.New(slog.DiscardHandler)) // a failure would stand between hundreds of lines of refused requests
	goleak.VerifyTestMain(redistest.Main(m))
}

// patient is for real time: a store on a busy machine answers within this budget too.
var patient = lock.WithBudget(10 * time.Second)

func requireFree(t *testing.T, l *lock.Locker, key string) {
	t.Helper()
	require.NoError(t, l.Do(t.Context(), key, func(context.Context) error { return nil }))
}

// Shared with the tests of the packages around.
type (
	stubStore   = guardtest.StubStore
	mortalStore = guardtest.MortalStore
)

var (
	quiet         = guardtest.Quiet
	requireReplay = guardtest.RequireReplay
	byUser        = guardtest.ByUser
	newLocker     = guardtest.NewLocker
	end           = guardtest.End
	flakyStore    = guardtest.FlakyStore
	openRedis     = guardtest.OpenRedis
	post          = guardtest.Post
	keyed         = guardtest.Keyed
	keyedBody     = guardtest.KeyedBody
	newSeal       = guardtest.NewSeal
	serve         = guardtest.Serve
	created       = guardtest.Created
	mustNotRun    = guardtest.MustNotRun
)

type guardFunc = func(http.Handler) http.Handler

func nest(outer, inner guardFunc) guardFunc {
	return func(h http.Handler) http.Handler { return outer(inner(h)) }
}

// inBubble runs f in parallel to other subtests, and in virtual time.
func inBubble(t *testing.T, name string, f func(t *testing.T)) {
	t.Helper()
	parallel.Run(t, name, func(t *testing.T) { synctest.Test(t, f) })
}

// unreachable returns a store that does not get a claim.
func unreachable() lock.Store {
	return &stubStore{Store: memstore.New(), OnClaim: func(context.Context, string, lock.Claim) (lock.Entry, error) {
		return lock.Entry{}, lock.ErrNotApplied
	}}
}

func logging(out *bytes.Buffer) lock.Option {
	return lock.WithLogger(slog.New(slog.NewJSONHandler(out, nil)))
}

func canceled(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	return ctx
}

// wantProblem is an expected refusal, absent headers included.
type wantProblem struct {
	status     int
	kind       string // last part of the type; "": no type
	retryAfter string // "": must be absent
	connection string // "": must be absent
}

func requireProblem(t *testing.T, want wantProblem, w *httptest.ResponseRecorder) {
	t.Helper()
	require.Equal(t, want.status, w.Code)
	require.Equal(t, []string{"application/problem+json"}, w.Header().Values("Content-Type"))
	require.Equal(t, []string{"no-store"}, w.Header().Values("Cache-Control"))
	require.Equal(t, []string{"Accept"}, w.Header().Values("Vary"))
	require.Equal(t, want.retryAfter, w.Header().Get("Retry-After"))
	require.Equal(t, want.connection, w.Header().Get("Connection"))
	require.Equal(t, []string{cmp.Or(want.kind, "refused")}, w.Header().Values("Latch-Problem"))
	for name := range w.Header() {
		require.Contains(t, []string{"Latch-Problem", "Content-Type", "Cache-Control", "Vary", "Retry-After", "Connection"}, name)
	}

	var body map[string]any
	require.NoError(t, json.Unmarshal(w.Body.Bytes(), &body), w.Body.String())
	members := 2
	if want.kind != "" {
		members++
		require.Equal(t, "https://github.com/httplatch/httplatch/blob/main/docs/problems.md#"+want.kind, body["type"])
	}
	if _, ok := body["detail"]; ok {
		members++
		require.NotEmpty(t, body["detail"])
	}
	require.Len(t, body, members)
	require.EqualValues(t, want.status, body["status"])
	require.NotEmpty(t, body["title"])
}

// requireLine requires out to be one line of a log, of this level, about the guard of this name.
func requireLine(t *testing.T, out fmt.Stringer, level, name, says string) {
	t.Helper()
	var line struct{ Level, Msg, Name string }
	require.NoError(t, json.Unmarshal([]byte(out.String()), &line), "exactly one line: %s", out)
	require.Equal(t, level, line.Level)
	require.Equal(t, name, line.Name)
	require.Contains(t, line.Msg, says)
}

// hold takes the key of user 42 until the test ends.
func hold(tb testing.TB, l *lock.Locker) {
	tb.Helper()
	lease := must.Get(l.Acquire(tb.Context(), lock.Key("user", "42")))(tb)
	tb.Cleanup(func() { require.NoError(tb, lease.Release(context.Background())) })
}

// redisStore is on a real server that all tests share, under its own keys.
func redisStore(t *testing.T) lock.Store {
	t.Helper()
	return openRedis(t, redistest.Shared(t).URL())
}
