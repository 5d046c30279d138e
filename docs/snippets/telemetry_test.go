package snippets_test

import (
	"context"
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/contrib/instrumentation/net/http/otelhttp"
	"go.opentelemetry.io/otel/attribute"

	"github.com/httplatch/httplatch/lock"
	"github.com/httplatch/httplatch/lock/lockotel"
	"github.com/httplatch/httplatch/lock/memstore"
)

func observed(store lock.Store) (*lock.Locker, func()) {
	telemetry := lockotel.New()
	locker := lock.New(store, lock.WithObserver(telemetry.Observe), lock.WithOrigin(lockotel.Origin))
	stop := telemetry.Watch(locker) // the gauges

	return locker, stop
}

func TestTelemetryOfThePage(t *testing.T) {
	t.Parallel()
	locker, stop := observed(memstore.New())
	defer stop()
	require.NoError(t, locker.Do(t.Context(), lock.Key("user", "42"), func(context.Context) error { return nil }))
	require.NoError(t, locker.Close(t.Context()))
}

func TestLabelsOfThePage(t *testing.T) {
	t.Parallel()
	for _, telemetry := range []*lockotel.Telemetry{
		lockotel.New(lockotel.WithLabeler(func(ctx context.Context, labels ...attribute.KeyValue) {
			if labeler, ok := otelhttp.LabelerFromContext(ctx); ok {
				labeler.Add(labels...)
			}
		})),
	} {
		var labeler otelhttp.Labeler
		var app application
		locker := newLocker(t, memstore.New(), lock.WithObserver(telemetry.Observe))
		h := stdlibRoutes(locker, app.handler(201), app.handler(200))
		labeled := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			h.ServeHTTP(w, r.WithContext(otelhttp.ContextWithLabeler(r.Context(), &labeler)))
		})
		require.Equal(t, 201, ask(labeled, "POST", "/orders", "k").Code)
		require.NotEmpty(t, labeler.Get())
	}
}
