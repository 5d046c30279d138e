package telemetry_test

import (
	"context"
	"net/http"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/sdk/trace"
	apitrace "go.opentelemetry.io/otel/trace"

	latchtest "github.com/httplatch/httplatch/httptest"
	"github.com/httplatch/httplatch/internal/testkit/must"
	"github.com/httplatch/httplatch/keyfunc"
	"github.com/httplatch/httplatch/lock"
	"github.com/httplatch/httplatch/lock/lockotel"
	"github.com/httplatch/httplatch/lock/memstore"
	latch "github.com/httplatch/httplatch/middleware"
)

// request runs f in a new span, as otelhttp runs a handler.
func (te *telemetry) request(t *testing.T, f func(ctx context.Context)) trace.ReadOnlySpan {
	t.Helper()
	ctx, span := te.traces.Tracer("test").Start(t.Context(), "POST /orders", apitrace.WithNewRoot())
	f(ctx)
	span.End()
	return span.(trace.ReadOnlySpan)
}

// named returns the spans of a name.
func (te *telemetry) named(name string) []trace.ReadOnlySpan {
	var all []trace.ReadOnlySpan
	for _, s := range te.spans.Ended() {
		if s.Name() == name {
			all = append(all, s)
		}
	}
	return all
}

func attr(span trace.ReadOnlySpan, key string) string {
	set := attribute.NewSet(span.Attributes()...)
	v, _ := set.Value(attribute.Key(key))
	return v.String()
}

// A replay, in another process and much later, leads to the trace of the request that ran.
func TestReplayIsLinkedToTheOriginal(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		te, store := newTelemetry(t), memstore.New()
		once := func() http.Handler {
			return latch.Idempotent(te.locker(t, store), keyfunc.Global, keyfunc.IdempotencyKey)(http.HandlerFunc(created))
		}
		submit := func(h http.Handler) trace.ReadOnlySpan {
			return te.request(t, func(ctx context.Context) {
				serve(h, post("/orders", "a", "Idempotency-Key", "k").WithContext(ctx))
			})
		}
		first := submit(once())
		require.Equal(t, "executed", attr(first, "idempotency.outcome"))
		require.Empty(t, first.Links())
		time.Sleep(time.Hour)

		replay := submit(once())
		require.Equal(t, "replayed", attr(replay, "idempotency.outcome"))
		require.Equal(t, "true", attr(replay, "idempotency.replayed"))
		require.Len(t, replay.Links(), 1)
		require.Equal(t, first.SpanContext().TraceID(), replay.Links()[0].SpanContext.TraceID())
		require.Equal(t, first.SpanContext().SpanID(), replay.Links()[0].SpanContext.SpanID())
		require.Equal(t, codes.Unset, replay.Status().Code)
	})
}

// A refused request is linked to the holder of the key, in this process and in another.
func TestRefusalIsLinkedToTheHolder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		te, store := newTelemetry(t), memstore.New()
		here, there := te.locker(t, store), te.locker(t, store)
		var e *lock.Lease
		holder := te.request(t, func(ctx context.Context) {
			e = must.Get(here.Acquire(ctx, "user=42"))(t)
		})
		for _, l := range []*lock.Locker{here, there} {
			refused := te.request(t, func(ctx context.Context) { require.ErrorIs(t, l.Do(ctx, "user=42", do), lock.ErrHeld) })
			require.Equal(t, "contended", attr(refused, "lock.outcome"))
			require.Len(t, refused.Links(), 1)
			require.Equal(t, holder.SpanContext().SpanID(), refused.Links()[0].SpanContext.SpanID())
			require.Equal(t, codes.Unset, refused.Status().Code, "to be refused is no error")
		}
		require.NoError(t, e.Release(t.Context()))
	})
}

// Without Origin, and for a trace that is not sampled, there is nothing to link.
func TestNoLinkWithoutASampledTrace(t *testing.T) {
	require.NotContains(t, lockotel.Origin(t.Context()), " 00-")
	ctx := apitrace.ContextWithSpanContext(t.Context(), apitrace.NewSpanContext(apitrace.SpanContextConfig{
		TraceID: apitrace.TraceID{1}, SpanID: apitrace.SpanID{2},
	}))
	require.NotContains(t, lockotel.Origin(ctx), " 00-")
}

// Any client may have written what stands in an entry: it is read with care.
func TestStrangeOwners(t *testing.T) {
	te := newTelemetry(t)
	for _, owner := range []string{
		"", " ", "web-1:1", "web-1:1 2026-11-20T10:11:12.345Z", "x 00-0-0-01", "x 00-zz-zz-01", "x 01-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
		"x 00-00000000000000000000000000000000-0000000000000000-01", "x 00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7",
	} {
		span := te.request(t, func(ctx context.Context) {
			te.Observe(ctx, lock.Event{Kind: lock.EventReplayed, Once: true, Owner: owner})
		})
		require.Empty(t, span.Links(), owner)
	}
}

func TestWaitsAreSpans(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		te := newTelemetry(t)
		l := te.locker(t, memstore.New(), lock.WithWait(time.Minute))
		e := must.Get(l.Acquire(t.Context(), "user=42"))(t)
		time.AfterFunc(time.Second, func() { _ = e.Release(t.Context()) })
		began := time.Now()
		request := te.request(t, func(ctx context.Context) { require.NoError(t, l.Do(ctx, "user=42", do)) })

		waits := te.named("lock wait")
		require.Len(t, waits, 1)
		require.Equal(t, request.SpanContext().SpanID(), waits[0].Parent().SpanID())
		require.Equal(t, began, waits[0].StartTime())
		require.Equal(t, time.Second, waits[0].EndTime().Sub(waits[0].StartTime()))
		require.Equal(t, []string{"acquired", "user"}, []string{attr(waits[0], "outcome"), attr(waits[0], "policy")})
	})
}

func TestRecoveriesAreSpans(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		te := newTelemetry(t)
		reclaims := te.locker(t, latchtest.LoseReply(memstore.New(), latchtest.Claim, 1))
		first := te.request(t, func(ctx context.Context) { require.NoError(t, reclaims.Do(ctx, "user=42", do)) })
		gives := te.locker(t, latchtest.LoseReply(memstore.New(), latchtest.Claim, 8))
		second := te.request(t, func(ctx context.Context) { require.ErrorIs(t, gives.Do(ctx, "user=42", do), lock.ErrUnknown) })
		time.Sleep(3 * time.Minute)

		found := te.named("lock recovery")
		require.Len(t, found, 2)
		require.Equal(t, []string{"reclaimed", "removed"}, []string{attr(found[0], "kind"), attr(found[1], "kind")})
		require.Equal(t, first.SpanContext().SpanID(), found[0].Parent().SpanID())
		require.Equal(t, second.SpanContext().SpanID(), found[1].Parent().SpanID(), "though the request was over long before")
		require.Equal(t, "unknown", attr(second, "lock.outcome"))
		require.Equal(t, "lock.call_failed", second.Events()[0].Name)
	})
}

// A takeover leads to the trace of the holder that vanished.
func TestTakeoverIsLinked(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		te, store := newTelemetry(t), memstore.New()
		die(t, te, store)
		refused := te.request(t, func(ctx context.Context) {
			_, _, err := te.locker(t, store).Once(ctx, "invoice=7", nil, answer)
			require.ErrorIs(t, err, lock.ErrAbandoned)
		})
		require.Equal(t, "idempotency.unknown_outcome", refused.Events()[0].Name)
		te.request(t, func(ctx context.Context) {
			must.Run(t)(te.locker(t, store, lock.WithRerunAbandoned()).Once(ctx, "invoice=7", nil, answer))
		})
		require.Equal(t, "taken_over", attr(te.named("lock recovery")[0], "kind"))
	})
}

func TestLossIsAnErrorOfItsSpan(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		te, store := newTelemetry(t), memstore.New()
		l := te.locker(t, store)
		span := te.request(t, func(ctx context.Context) {
			require.ErrorIs(t, l.Do(ctx, "user=42", func(ctx context.Context) error {
				forget(t, store)
				<-ctx.Done()
				synctest.Wait()
				return nil
			}), lock.ErrLost)
		})
		require.Equal(t, codes.Error, span.Status().Code)
		require.Equal(t, "lock.lost", span.Events()[0].Name)
	})
}

// The labels for the metrics of others: what became of the request, and of a
// failure that was passed over, that.
func TestLabeler(t *testing.T) {
	var mu sync.Mutex
	got := map[attribute.Key]string{}
	te := newTelemetry(t, lockotel.WithLabeler(func(_ context.Context, labels ...attribute.KeyValue) {
		mu.Lock()
		defer mu.Unlock()
		for _, l := range labels {
			got[l.Key] = l.Value.AsString()
		}
	}))
	l := te.locker(t, memstore.New())
	h := latch.Idempotent(l, keyfunc.Global, keyfunc.IdempotencyKey)(latch.Lock(l, "user", byUser)(http.HandlerFunc(created)))
	serve(h, post("/orders", "", "Idempotency-Key", "k", "X-User-ID", "42"))
	require.Equal(t, map[attribute.Key]string{"idempotency.outcome": "executed", "lock.outcome": "acquired"}, got)
	clear(got)
	serve(h, post("/orders", "", "Idempotency-Key", "k", "X-User-ID", "42"))
	require.Equal(t, map[attribute.Key]string{"idempotency.outcome": "replayed"}, got)
	clear(got)
	full := te.locker(t, memstore.New(memstore.WithLimits(1, 1)))
	h = latch.Lock(full, "user", byUser, latch.WithFailOpen())(http.HandlerFunc(created))
	require.Equal(t, http.StatusCreated, serve(h, post("/orders", "", "X-User-ID", "42")).Code)
	require.Equal(t, map[attribute.Key]string{"lock.outcome": "failed_open"}, got)
}

func TestNonsensePanics(t *testing.T) {
	for name, f := range map[string]func(){
		"nil option":          func() { lockotel.New(nil) },
		"nil meter provider":  func() { lockotel.WithMeterProvider(nil) },
		"nil tracer provider": func() { lockotel.WithTracerProvider(nil) },
		"nil labeler":         func() { lockotel.WithLabeler(nil) },
		"nil locker":          func() { lockotel.New().Watch(nil) },
	} {
		require.Panics(t, f, name)
	}
}

// Stopped gauges are gone, and to stop twice does nothing.
func TestWatchStops(t *testing.T) {
	te := newTelemetry(t)
	stop := te.Watch(lock.New(memstore.New()))
	require.Contains(t, te.scrape(t), "lock_reaper_backlog")
	stop()
	stop()
	require.NotContains(t, te.scrape(t), "lock_reaper_backlog")
}
