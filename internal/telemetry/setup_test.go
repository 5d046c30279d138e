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

	"github.com/prometheus/client_golang/prometheus/promhttp"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel/exporters/prometheus"
	"go.opentelemetry.io/otel/sdk/metric"

	"github.com/httplatch/httplatch/keyfunc"
	"github.com/httplatch/httplatch/lock"
	"github.com/httplatch/httplatch/lock/lockotel"
	"github.com/httplatch/httplatch/lock/memstore"
	latch "github.com/httplatch/httplatch/middleware"
)

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

	page, err := os.ReadFile("../../docs/telemetry.md")
	require.NoError(t, err)
	config := regexp.MustCompile("(?s)```yaml\n(.*?)```").FindSubmatch(page)
	require.NotNil(t, config, "the page has no prometheus.yml")
	promtool := findPromtool(t)
	dir := t.TempDir()
	alerts, err := os.ReadFile(filepath.Join(monitoring, "alerts.yml"))
	require.NoError(t, err)
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
