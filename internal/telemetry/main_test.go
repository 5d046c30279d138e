package telemetry_test

import (
	"context"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
	"github.com/stretchr/testify/require"
	otelprom "go.opentelemetry.io/otel/exporters/prometheus"
	"go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.uber.org/goleak"

	"github.com/httplatch/httplatch/internal/testkit/must"
	"github.com/httplatch/httplatch/lock"
	"github.com/httplatch/httplatch/lock/lockotel"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const (
	lease  = 3 * time.Second
	budget = 300 * time.Millisecond
)

var quiet = slog.New(slog.DiscardHandler)

// telemetry is what a program sets up, with its data at hand.
type telemetry struct {
	*lockotel.Telemetry
	registry *prometheus.Registry
	meters   *metric.MeterProvider
	spans    *tracetest.SpanRecorder
	traces   *trace.TracerProvider
}

func newTelemetry(t *testing.T, opts ...lockotel.Option) *telemetry {
	t.Helper()
	registry := prometheus.NewRegistry()
	exporter := must.Get(otelprom.New(otelprom.WithRegisterer(registry), otelprom.WithoutScopeInfo(), otelprom.WithoutTargetInfo()))(t)
	meters := metric.NewMeterProvider(metric.WithReader(exporter))
	t.Cleanup(func() { require.NoError(t, meters.Shutdown(context.Background())) })
	spans := tracetest.NewSpanRecorder()
	traces := trace.NewTracerProvider(trace.WithSpanProcessor(spans))
	opts = append([]lockotel.Option{lockotel.WithMeterProvider(meters), lockotel.WithTracerProvider(traces)}, opts...)
	return &telemetry{lockotel.New(opts...), registry, meters, spans, traces}
}

// locker returns a Locker that reports to te, and is watched until t ends.
func (te *telemetry) locker(t *testing.T, store lock.Store, opts ...lock.Option) *lock.Locker {
	t.Helper()
	l := lock.New(store, append([]lock.Option{
		lock.WithLogger(quiet), lock.WithLease(lease), lock.WithBudget(budget),
		lock.WithObserver(te.Observe), lock.WithOrigin(lockotel.Origin),
	}, opts...)...)
	t.Cleanup(te.Watch(l))
	return l
}

func (te *telemetry) gather(t *testing.T) []*dto.MetricFamily {
	t.Helper()
	return must.Get(te.registry.Gather())(t)
}

// scrape returns the samples of a scrape: "lock_losses_total{policy=user,reason=taken}".
// Of a histogram it has the count.
func (te *telemetry) scrape(t *testing.T) map[string]float64 {
	t.Helper()
	samples := make(map[string]float64)
	for _, f := range te.gather(t) {
		for _, m := range f.GetMetric() {
			samples[f.GetName()+labels(m)] = valueOf(m)
		}
	}
	return samples
}

func labels(m *dto.Metric) string {
	var all []string
	for _, l := range m.GetLabel() {
		all = append(all, l.GetName()+"="+l.GetValue())
	}
	if len(all) == 0 {
		return ""
	}
	return "{" + strings.Join(all, ",") + "}"
}

func valueOf(m *dto.Metric) float64 {
	switch {
	case m.GetCounter() != nil:
		return m.GetCounter().GetValue()
	case m.GetGauge() != nil:
		return m.GetGauge().GetValue()
	default:
		return float64(m.GetHistogram().GetSampleCount())
	}
}

// familyOf cuts the labels off a sample's name.
func familyOf(sample string) string {
	name, _, _ := strings.Cut(sample, "{")
	return name
}

func post(path, body string, header ...string) *http.Request {
	r := httptest.NewRequest(http.MethodPost, path, strings.NewReader(body))
	for i := 0; i < len(header); i += 2 {
		r.Header.Set(header[i], header[i+1])
	}
	return r
}

func serve(h http.Handler, r *http.Request) *httptest.ResponseRecorder {
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w
}
