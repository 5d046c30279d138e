package latchcaddy

import (
	"errors"

	"github.com/caddyserver/caddy/v2"
	"github.com/prometheus/client_golang/prometheus"
	otelprom "go.opentelemetry.io/otel/exporters/prometheus"
	"go.opentelemetry.io/otel/sdk/metric"

	"github.com/httplatch/httplatch/lock/lockotel"
)

// meters are the metrics of the process. Caddy makes a new registry for each configuration. If the
// counters began anew as well, they would hide events during a reload.
type meters struct {
	registration

	provider  *metric.MeterProvider
	telemetry *lockotel.Telemetry
}

// registration keeps the collector of an exporter, for the registries of all configurations.
type registration struct{ collector prometheus.Collector }

// Register is called by the exporter.
func (r *registration) Register(c prometheus.Collector) error {
	r.collector = c
	return nil
}

// MustRegister is part of [prometheus.Registerer].
func (r *registration) MustRegister(cs ...prometheus.Collector) {
	for _, c := range cs {
		r.collector = c
	}
}

// Unregister is part of [prometheus.Registerer].
func (*registration) Unregister(prometheus.Collector) bool { return false }

// metersKey is the only key of metersPool.
type metersKey struct{}

var metersPool = caddy.NewUsagePool() //nolint:gochecknoglobals // as for stores

// useMeters returns the metrics, registered in registry. leaveMeters gives them back.
func useMeters(registry *prometheus.Registry) (*meters, error) {
	value, _, err := metersPool.LoadOrNew(metersKey{}, func() (caddy.Destructor, error) {
		m := new(meters)
		exporter, err := otelprom.New(otelprom.WithRegisterer(&m.registration), otelprom.WithoutScopeInfo(), otelprom.WithoutTargetInfo())
		if err != nil {
			return nil, err
		}
		m.provider = metric.NewMeterProvider(metric.WithReader(exporter))
		m.telemetry = lockotel.New(lockotel.WithMeterProvider(m.provider))
		return m, nil
	})
	if err != nil {
		return nil, err
	}
	m, ok := value.(*meters)
	if !ok {
		return nil, errors.New("the metrics could not be made: load the configuration again")
	}
	return m, registry.Register(m.collector)
}

func leaveMeters() error {
	_, err := metersPool.Delete(metersKey{})
	return err
}

// Destruct drops the metrics at the end of the last configuration. Their provider has no goroutine
// to stop and no data to send.
func (*meters) Destruct() error { return nil }
