package snippets_test

import (
	"encoding/json"
	"fmt"
	"math"
	"net/http"
	"net/http/httptest"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel/trace"

	"github.com/httplatch/httplatch/form"
	"github.com/httplatch/httplatch/internal/requestinfo"
	"github.com/httplatch/httplatch/internal/testkit/must"
	"github.com/httplatch/httplatch/internal/testkit/redistest"
	"github.com/httplatch/httplatch/keyfunc"
	"github.com/httplatch/httplatch/lock"
	"github.com/httplatch/httplatch/lock/lockotel"
	"github.com/httplatch/httplatch/lock/redisstore"
	latch "github.com/httplatch/httplatch/middleware"
)

// TestFiguresOfTheBenchmark: the README and docs/choosing.md have the figures of
// bench/RESULTS.md, rounded.
func TestFiguresOfTheBenchmark(t *testing.T) {
	t.Parallel()
	const (
		cycles8   = "cycles/s, 8 callers | "
		cycles256 = "cycles/s, 256 callers | "
		trips     = "round trips of "
	)
	results := resultsOf(t, read(t, "../../bench/RESULTS.md"))
	for _, tt := range []struct {
		page, line string   // the beginning of the row or the paragraph that has
		figures    []string // the figures of these rows and columns
	}{
		{"README.md", "A guard adds", []string{
			trips + "a first request, Lock, Redis | median", trips + "a first request, Idempotent, Redis | median",
			trips + "a replay, Idempotent, Redis | median", trips + "a duplicate in the holder's process, Lock, Redis | median",
			"µs in memory, Lock | median", "µs in memory, Idempotent, first | median",
		}},
		{"README.md", "| 8 callers |", []string{cycles8 + "httplatch", cycles8 + "bsm/redislock", cycles8 + "go-redsync/redsync", cycles8 + "redis/rueidislock", cycles8 + "SET NX + EVALSHA", cycles8 + "SET NX + EVALSHA, rueidis"}},
		{"README.md", "| 256 callers |", []string{cycles256 + "httplatch", cycles256 + "bsm/redislock", cycles256 + "go-redsync/redsync", cycles256 + "redis/rueidislock", cycles256 + "SET NX + EVALSHA", cycles256 + "SET NX + EVALSHA, rueidis"}},
		{"docs/choosing.md", "| server CPU for a cycle (claim and release), one caller |", []string{"server CPU, µs, 1 caller | httplatch"}},
		{"docs/choosing.md", "| the same, 256 callers in one process", []string{"server CPU, µs, 256 callers | httplatch"}},
		{"docs/choosing.md", "| cycles a second, server and 256 callers", []string{cycles256 + "httplatch"}},
	} {
		cells := figuresOf(t, read(t, "../../"+tt.page), tt.line)
		for _, row := range tt.figures {
			require.Contains(t, results, row)
			require.True(t, has(cells, results[row]), "%s: %s: %v has no %v: %s", tt.page, tt.line, cells, results[row], row)
		}
	}
}

// The README has the figures of bench/day.json.
func TestFiguresOfTheDay(t *testing.T) {
	t.Parallel()
	type day struct {
		Name               string
		TTL, Longest       time.Duration
		Rate               float64
		Orders             int
		LockedOut, Minutes float64
	}
	var all []day
	for line := range strings.Lines(read(t, "../../bench/day.json")) {
		var d day
		require.NoError(t, json.Unmarshal([]byte(line), &d))
		all = append(all, d)
	}
	const paragraph = "In a simulated day" // begins with this
	run := func(name string, ttl time.Duration) day {
		t.Helper()
		i := slices.IndexFunc(all, func(d day) bool { return d.Name == name && d.TTL == ttl && d.Rate == 1000 && d.Orders == 1_000_000 })
		require.GreaterOrEqual(t, i, 0, name)
		return all[i]
	}
	incident, ours := run("the incident's policy", 2*time.Hour), run("httplatch, Lock", 30*time.Second)
	require.InDelta(t, 1, ours.LockedOut, 0, "the README says one customer")
	cells := figuresOf(t, read(t, "../../README.md"), paragraph)
	for _, f := range []float64{incident.LockedOut, incident.Minutes, math.Round(ours.Longest.Seconds())} {
		require.True(t, has(cells, f), "%s: %v has no %v", paragraph, cells, f)
	}
}

// resultsOf returns the cells of tables, by the first cell of their row and by their column: of
// a ratio with its spread, the ratio.
func resultsOf(t *testing.T, text string) map[string]float64 {
	t.Helper()
	all, header := map[string]float64{}, []string(nil)
	for line := range strings.Lines(text) {
		cells := strings.Split(strings.Trim(strings.TrimSpace(line), "|"), " |")
		switch {
		case !strings.HasPrefix(line, "|"):
			header = nil
			continue
		case header == nil:
			header = cells
			continue
		}
		for i, cell := range cells[1:] {
			if figure := regexp.MustCompile(`^ [\d,.]+`).FindString(cell); figure != "" {
				all[strings.TrimSpace(cells[0])+" | "+strings.TrimSpace(header[i+1])] = number(t, strings.TrimSpace(figure))
			}
		}
	}
	require.Greater(t, len(all), 100)
	return all
}

func figuresOf(t *testing.T, text, begins string) (all []float64) {
	t.Helper()
	_, cells, ok := strings.Cut(text, "\n"+begins)
	require.True(t, ok, "nothing begins with %q", begins)
	end := "\n\n"
	if strings.HasPrefix(begins, "|") {
		end = "\n"
	}
	cells, _, _ = strings.Cut(cells, end)
	for _, n := range regexp.MustCompile(`\d[\d,]*\d(?:\.\d+)?|\d(?:\.\d+)?`).FindAllString(cells, -1) {
		all = append(all, number(t, n))
	}
	return all
}

func number(t *testing.T, text string) float64 {
	t.Helper()
	return must.Get(strconv.ParseFloat(strings.ReplaceAll(text, ",", ""), 64))(t)
}

// has reports whether one of the figures is f, rounded to a decimal or to half a percent;
// from 10 on it may be a whole number.
func has(figures []float64, f float64) bool {
	return slices.ContainsFunc(figures, func(figure float64) bool {
		return math.Abs(figure-f) <= 0.005*f || figure == math.Round(10*f)/10 || f >= 10 && math.Abs(figure-f) <= 0.5
	})
}

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
	store := must.Get(redisstore.Open(t.Context(), srv.URL(), redisstore.WithPrefix("shop:")))(t)
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
		leases = append(leases, must.Get(locker.Acquire(t.Context(), key(i)))(t))
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

func numberOn(t *testing.T, page, words string) int {
	t.Helper()
	return numberIn(t, read(t, page), words)
}

func numberIn(t *testing.T, text, words string) int {
	t.Helper()
	m := regexp.MustCompile(words).FindStringSubmatch(text)
	require.NotNil(t, m, words)
	return must.Get(strconv.Atoi(m[1]))(t)
}

func usedMemory(t *testing.T, srv *redistest.Server) int {
	t.Helper()
	info, ok := srv.Do(t, "INFO", "memory").(string)
	require.True(t, ok)
	return numberIn(t, info, `used_memory:(\d+)`)
}
