package telemetry_test

import (
	"log"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/prometheus/client_golang/prometheus/promhttp"
	dto "github.com/prometheus/client_model/go"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel/exporters/prometheus"
	"go.opentelemetry.io/otel/sdk/metric"

	"github.com/httplatch/httplatch/internal/testkit/must"
	"github.com/httplatch/httplatch/keyfunc"
	"github.com/httplatch/httplatch/lock"
	"github.com/httplatch/httplatch/lock/lockotel"
	"github.com/httplatch/httplatch/lock/memstore"
	latch "github.com/httplatch/httplatch/middleware"
)

// documented is a row of the table of metrics.
type documented struct {
	kind       string
	labels     []string
	means, act string
}

// readDocs returns the rows of docs/telemetry.md by their Prometheus names.
func readDocs(t *testing.T) map[string]documented {
	t.Helper()
	text := must.Get(os.ReadFile("../../docs/telemetry.md"))(t)
	rows := make(map[string]documented)
	for line := range strings.Lines(string(text)) {
		cells := strings.Split(line, "|")
		if len(cells) != 7 || !strings.HasPrefix(cells[1], " `") {
			continue
		}
		cells = cells[1:6]
		for i := range cells {
			cells[i] = strings.Trim(strings.TrimSpace(cells[i]), "`")
		}
		rows[cells[0]] = documented{
			kind: cells[1], means: cells[3], act: cells[4],
			labels: strings.FieldsFunc(cells[2], func(r rune) bool { return r == ',' || r == ' ' }),
		}
	}
	require.Len(t, rows, 24)
	return rows
}

// everything is what a scrape has when all situations have come about.
func everything(t *testing.T) (families map[string]*dto.MetricFamily, moved map[string]bool) {
	t.Helper()
	families, moved = make(map[string]*dto.MetricFamily), make(map[string]bool)
	synctest.Test(t, func(t *testing.T) {
		te := newTelemetry(t)
		for _, s := range situations {
			before := te.scrape(t)
			s.makes(t, te)
			synctest.Wait() // a loss, for one, is counted after the work was notified
			for sample, value := range te.scrape(t) {
				if value != before[sample] {
					moved[familyOf(sample)] = true
				}
			}
		}
		for _, f := range te.gather(t) {
			families[f.GetName()] = f
		}
	})
	return families, moved
}

// Every metric in the docs exists, moves, and is as they say, and none is missing there. Every outcome is explained.
func TestDocsTellTheMetrics(t *testing.T) {
	docs := readDocs(t)
	families, moved := everything(t)
	for name, d := range docs {
		require.Contains(t, families, name, "in the docs, not in a scrape")
		f := families[name]
		require.Equal(t, d.kind, strings.ToLower(f.GetType().String()), name)
		labels := make(map[string]bool)
		for _, m := range f.GetMetric() {
			for _, l := range m.GetLabel() {
				labels[l.GetName()] = true
			}
		}
		require.Len(t, labels, len(d.labels), "%s has %v", name, labels)
		for _, l := range d.labels {
			require.True(t, labels[l], "%s has no label %s", name, l)
		}
		require.NotEmpty(t, d.means, name)
		require.NotEmpty(t, d.act, name)
	}
	for name := range families {
		require.Contains(t, docs, name, "in a scrape, not in the docs")
		if name != "lock_inflight" && name != "idempotency_store_entries" && name != "idempotency_store_size_bytes" && name != "lock_reaper_backlog" &&
			name != "lock_reaper_size_bytes" && name != "lock_reaper_dropped_total" && name != "idempotency_unfinished" {
			require.True(t, moved[name], "%s has never moved", name)
		}
	}

	_, outcomes, found := strings.Cut(string(must.Get(os.ReadFile("../../docs/telemetry.md"))(t)), "### Outcomes")
	require.True(t, found)
	seen := make(map[string]bool)
	for _, name := range []string{"lock_acquisitions_total", "idempotency_requests_total"} {
		for _, m := range families[name].GetMetric() {
			for _, l := range m.GetLabel() {
				if l.GetName() == "outcome" {
					require.Regexp(t, "(?m)^\\|.*`"+l.GetValue()+"`", outcomes)
					seen[l.GetValue()] = true
				}
			}
		}
	}
	require.Greater(t, len(seen), 12)
}

// serviceOfThePage is the program of docs/telemetry.md, without its listener.
func serviceOfThePage(store lock.Store, createOrder http.HandlerFunc) (*http.ServeMux, func()) {
	exporter, err := prometheus.New(prometheus.WithoutScopeInfo()) // registers with Prometheus' default registry
	if err != nil {
		log.Fatal(err)
	}
	telemetry := lockotel.New(lockotel.WithMeterProvider(metric.NewMeterProvider(metric.WithReader(exporter))))
	locker := lock.New(store, lock.WithObserver(telemetry.Observe), lock.WithOrigin(lockotel.Origin))
	stop := telemetry.Watch(locker) // the gauges; call stop at the end

	mux := http.NewServeMux()
	onePerUser := latch.Lock(locker, "user", keyfunc.Header("X-User-ID"))
	mux.Handle("POST /orders", onePerUser(createOrder))
	mux.Handle("GET /metrics", promhttp.Handler()) // not for the public: another port, or behind your authentication

	return mux, stop
}

// The program of the page has what each of its alerts and its table look at, and Prometheus'
// own tools take its answer and the page's configuration.
func TestPrometheusOfThePage(t *testing.T) {
	mux, stop := serviceOfThePage(memstore.New(), created)
	defer stop()
	require.Equal(t, http.StatusCreated, serve(mux, post("/orders", "x", "X-User-ID", "42")).Code)
	r := httptest.NewRequest(http.MethodGet, "/metrics", http.NoBody)
	scrape := serve(mux, r).Body.String()
	for _, line := range []string{
		`lock_acquisitions_total{outcome="acquired",policy="user"} 1`, `lock_losses_total{policy="user",reason="taken"} 0`,
		`lock_bypasses_total{policy="user"} 0`, "lock_store_trouble 0", "lock_inflight 0", "idempotency_store_entries ", "go_goroutines ",
	} {
		require.Contains(t, scrape, "\n"+line)
	}

	page := must.Get(os.ReadFile("../../docs/telemetry.md"))(t)
	config := regexp.MustCompile("(?s)```yaml\n(.*?)```").FindSubmatch(page)
	require.NotNil(t, config, "the page has no prometheus.yml")
	promtool := findPromtool(t)
	dir := t.TempDir()
	alerts := must.Get(os.ReadFile(filepath.Join(monitoring, "alerts.yml")))(t)
	require.NoError(t, os.WriteFile(filepath.Join(dir, "alerts.yml"), alerts, 0o600))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "prometheus.yml"), config[1], 0o600))
	check := exec.CommandContext(t.Context(), promtool, "check", "config", "prometheus.yml")
	check.Dir = dir
	out, err := check.CombinedOutput()
	require.NoError(t, err, "%s", out)
	require.Contains(t, string(out), "11 rules found")
	lint := exec.CommandContext(t.Context(), promtool, "check", "metrics")
	lint.Stdin = strings.NewReader(scrape)
	out, err = lint.CombinedOutput()
	require.NoError(t, err, "%s", out)
}
