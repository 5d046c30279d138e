package middleware_test

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/httplatch/httplatch/internal/testkit/guardtest"
	"github.com/httplatch/httplatch/internal/testkit/redistest"
	"github.com/httplatch/httplatch/lock"
)

func TestMain(m *testing.M) {
	slog.SetDefault(slog.New(slog.DiscardHandler)) // a failure would stand between hundreds of lines of refused requests
	goleak.VerifyTestMain(redistest.Main(m))
}

// patient is for tests with real time and stores that may be late: a store on a busy machine
// answers within this budget too.
var patient = lock.WithBudget(10 * time.Second)

// requireFree checks that key can be taken now.
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
	quiet      = guardtest.Quiet
	byUser     = guardtest.ByUser
	newLocker  = guardtest.NewLocker
	end        = guardtest.End
	flakyStore = guardtest.FlakyStore
	openRedis  = guardtest.OpenRedis
	post       = guardtest.Post
	keyed      = guardtest.Keyed
	keyedBody  = guardtest.KeyedBody
	serve      = guardtest.Serve
	created    = guardtest.Created
	mustNotRun = guardtest.MustNotRun
)

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

// requireLine requires out to be one line of a log, of this level, about the guard of this
// name.
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
	lease, err := l.Acquire(tb.Context(), lock.Key("user", "42"))
	require.NoError(tb, err)
	tb.Cleanup(func() { require.NoError(tb, lease.Release(context.Background())) })
}
