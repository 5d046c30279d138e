package snippets_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel/trace"

	"github.com/httplatch/httplatch/form"
	"github.com/httplatch/httplatch/internal/requestinfo"
	"github.com/httplatch/httplatch/internal/testkit/redistest"
	"github.com/httplatch/httplatch/keyfunc"
	"github.com/httplatch/httplatch/lock"
	"github.com/httplatch/httplatch/lock/lockotel"
	"github.com/httplatch/httplatch/lock/redisstore"
	latch "github.com/httplatch/httplatch/middleware"
)

// TestSizes measures by how much the memory of a Redis grows with each entry, and holds the
// pages to it.
func TestSizes(t *testing.T) {
	t.Parallel()
	const entries, answer = 6_000, 1024
	aLock := numberOn(t, "../redis.md", "A lock takes about (\\d+) bytes, with a key such as `shop:lock:user=1000000`")
	require.Equal(t, aLock, numberOn(t, "../choosing.md", `\| memory for a lock, with a key such as .* \| (\d+) B `))
	record := answer + numberOn(t, "../redis.md", `\(size of an answer \+ (\d+) bytes\)`)
	require.Contains(t, read(t, "../choosing.md"), fmt.Sprintf("| memory for the record of an answer of 1 KiB | %.1f kB", float64(record)/1000))

	srv := redistest.Start(t)
	store, err := redisstore.Open(t.Context(), srv.URL(), redisstore.WithPrefix("shop:"))
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, store.Close()) })
	locker := newLocker(t, store, lock.WithBudget(10*time.Second), lock.WithLease(10*time.Minute))
	grown := func(of string, want int, add func(i int)) {
		t.Helper()
		add(0) // connections and scripts are no entries
		before := usedMemory(t, srv)
		for i := range entries {
			add(i + 1)
		}
		bytes := (usedMemory(t, srv) - before) / entries
		t.Logf("%s takes %d bytes of a Redis", of, bytes)
		// Servers differ, and so do the names of hosts, which are in each entry.
		require.InDelta(t, 0.95*float64(want), bytes, 0.2*float64(want))
	}

	var leases []*lock.Lease
	key := func(i int) string { return lock.Key("user", strconv.Itoa(1_000_000+i)) }
	grown("a lock", aLock, func(i int) {
		lease, err := locker.Acquire(t.Context(), key(i))
		require.NoError(t, err)
		leases = append(leases, lease)
	})
	for _, lease := range leases {
		require.NoError(t, lease.Release(t.Context()))
	}

	once := latch.Idempotent(locker, keyfunc.Context(auth.UserID), keyfunc.IdempotencyKey)
	h := auth.Require(once(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		w.Header().Set("Location", "/orders/6J25NBC6PSYZRTTN7RBQMAPK55")
		_, _ = w.Write(make([]byte, answer))
	})))
	grown("the record of an answer of 1 KiB", record, func(i int) {
		require.Equal(t, http.StatusOK, ask(h, "POST", "/orders", fmt.Sprintf("8e03978e-40d5-43e8-bc93-%012d", i)).Code)
	})
}

// TestSizesOfTexts: what the pages say of what is served, and of what is added to an entry.
func TestSizesOfTexts(t *testing.T) {
	t.Parallel()
	r := httptest.NewRequestWithContext(t.Context(), "GET", "/latch.js", nil)
	r.Header.Set("Accept-Encoding", "gzip")
	w := httptest.NewRecorder()
	form.Script().ServeHTTP(w, r)
	require.Contains(t, read(t, "../forms.md"), fmt.Sprintf("a script of %.1f kB (compressed)", float64(w.Body.Len())/1000))

	request := requestinfo.Request{Guard: "orders", Method: "POST", Path: "/orders", Label: "user-777777", Began: time.Now()}
	require.Len(t, request.AppendTo(nil), numberOn(t, "../console.md", "`orders`, `POST`, `/orders` and `user-777777`: (\\d+) bytes"))
	bare := requestinfo.Request{Began: time.Now()}
	require.Len(t, bare.AppendTo(nil), numberOn(t, "../console.md", `The texts cost (\d+) bytes and their own length`))

	sampled := trace.NewSpanContext(trace.SpanContextConfig{TraceID: trace.TraceID{1}, SpanID: trace.SpanID{1}, TraceFlags: trace.FlagsSampled})
	require.Len(t, " "+lockotel.Origin(trace.ContextWithSpanContext(t.Context(), sampled)), numberOn(t, "../telemetry.md", `It costs (\d+) bytes an entry`))
	require.Len(t, " "+lockotel.Origin(t.Context()), numberOn(t, "../telemetry.md", `an entry \((\d+) without a\s+sampled trace`))
}

// TestVersions: the pages name the versions that the tests run with.
func TestVersions(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct{ page, words, file, required string }{
		{"../../README.md", `needs Go (\d+\.\d+) or later`, "../../go.mod", `(?m)^go (\S+)$`},
		{"../../README.md", `tested\s+with \S+ and (\d+\.\d+)\b`, "../../Makefile", `NEWER_GO \?= go(\S+)`},
		{"../routers.md", `with\s+echo (\d+\.\d+)`, "../../middleware/echo/go.mod", `labstack/echo/v5 v(\S+)`},
		{"../routers.md", `and (\d+\.\d+)\.`, "../../middleware/echo/go.mod", `labstack/echo/v4 v(\S+)`},
		{"../routers.md", `with gin (\d+\.\d+)`, "../../middleware/gin/go.mod", `gin-gonic/gin v(\S+)`},
		{"../routers.md", `with fiber (\d+\.\d+)`, "go.mod", `gofiber/fiber/v3 v(\S+)`},
		{"../grpc.md", `connect-go (\d+\.\d+)`, "../integrations/go.mod", `connectrpc.com/connect v(\S+)`},
		{"../grpc.md", `grpc-go (\d+\.\d+)`, "../integrations/go.mod", `google.golang.org/grpc v(\S+)`},
		{"../queues.md", `asynq (\d+\.\d+)`, "../integrations/go.mod", `hibiken/asynq v(\S+)`},
		{"../queues.md", `watermill (\d+\.\d+)`, "../integrations/go.mod", `ThreeDotsLabs/watermill v(\S+)`},
		{"../queues.md", `franz-go (\d+\.\d+)`, "../integrations/go.mod", `twmb/franz-go v(\S+)`},
	} {
		named := regexp.MustCompile(tt.words).FindStringSubmatch(read(t, tt.page))
		require.NotNil(t, named, "%s: %s", tt.page, tt.words)
		required := regexp.MustCompile(tt.required).FindStringSubmatch(read(t, tt.file))
		require.NotNil(t, required, "%s: %s", tt.file, tt.required)
		require.True(t, strings.HasPrefix(required[1]+".", named[1]+"."), "%s: %s, and %s has %s", tt.page, named[0], tt.file, required[1])
	}
}

// numberOn is the one that a page has behind these words.
func numberOn(t *testing.T, page, words string) int {
	t.Helper()
	m := regexp.MustCompile(words).FindStringSubmatch(read(t, page))
	require.NotNil(t, m, "%s: %s", page, words)
	n, err := strconv.Atoi(m[1])
	require.NoError(t, err)
	return n
}

func usedMemory(t *testing.T, srv *redistest.Server) int {
	t.Helper()
	info, ok := srv.Do(t, "INFO", "memory").(string)
	require.True(t, ok)
	m := regexp.MustCompile(`used_memory:(\d+)`).FindStringSubmatch(info)
	require.NotNil(t, m)
	n, err := strconv.Atoi(m[1])
	require.NoError(t, err)
	return n
}
