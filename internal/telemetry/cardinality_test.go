package telemetry_test

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel/attribute"
	otelmetric "go.opentelemetry.io/otel/metric"

	"github.com/httplatch/httplatch/keyfunc"
	"github.com/httplatch/httplatch/lock"
	"github.com/httplatch/httplatch/lock/memstore"
	latch "github.com/httplatch/httplatch/middleware"
)

const users = 20_000

// storm sends the requests of so many users, each to its own path and
// under its own idempotency key, through both guards; some of them twice.
func storm(t *testing.T, l *lock.Locker, from, to int) {
	t.Helper()
	h := latch.Idempotent(l, byUser, keyfunc.IdempotencyKey)(latch.Lock(l, "user", byUser)(http.HandlerFunc(created)))
	for i := from; i < to; i++ {
		user := "user-" + strconv.Itoa(i)
		for range 1 + i%2 {
			w := serve(h, post("/orders/"+user, user, "X-User-ID", user, "Idempotency-Key", "key-"+user))
			require.Equal(t, http.StatusCreated, w.Code)
		}
	}
}

// No key, user or path is in a label: there are as many series for twenty thousand
// users as for ten.
func TestCardinalityIsFlat(t *testing.T) {
	te := newTelemetry(t)
	l := te.locker(t, memstore.New())
	storm(t, l, 0, 10)
	few := te.scrape(t)
	storm(t, l, 10, users)
	many := te.scrape(t)
	delete(many, "lock_renewals_total{outcome=ok,policy=idempotent}") // of a machine that stood still for ten seconds
	delete(many, "lock_renewals_total{outcome=ok,policy=user}")
	require.Len(t, many, len(few))
	require.Less(t, len(many), 100)
	t.Logf("%d series after %d users, %d after 10", len(many), users, len(few))
	require.InDelta(t, users, many["lock_acquisitions_total{outcome=acquired,policy=user}"], 0)
	require.InDelta(t, users/2, many["idempotency_requests_total{outcome=replayed,policy=idempotent}"], 0)
	for sample := range many {
		require.NotContains(t, sample, "user-")
		require.NotContains(t, sample, "key-")
		require.NotContains(t, sample, "orders")
	}
}

// The twin: an observer that makes a label of the key.
func TestCardinalityOfKeysIsNotFlat(t *testing.T) {
	te := newTelemetry(t)
	leaky, err := te.meters.Meter("test").Int64Counter("leaky")
	require.NoError(t, err)
	l := te.locker(t, memstore.New(), lock.WithObserver(func(ctx context.Context, e lock.Event) {
		leaky.Add(ctx, 1, otelmetric.WithAttributes(attribute.String("key", e.Key)))
	}))
	storm(t, l, 0, 10)
	few := te.scrape(t)
	storm(t, l, 10, 100)
	require.Greater(t, len(te.scrape(t)), len(few))
}

// A program that composes its keys itself may put anything before the "=".
func TestPoliciesAreBounded(t *testing.T) {
	te := newTelemetry(t)
	l := te.locker(t, memstore.New())
	for i := range 10_000 {
		require.NoError(t, l.Do(t.Context(), fmt.Sprintf("%d=key", i), do))
		_, _, err := l.Once(t.Context(), (&url.URL{Path: strconv.Itoa(i), RawQuery: "id=7"}).String(), nil, answer)
		require.NoError(t, err)
	}
	policies := map[string]bool{}
	for sample := range te.scrape(t) {
		if _, after, ok := strings.Cut(sample, "policy="); ok {
			policy, _, _ := strings.Cut(strings.TrimRight(after, "}"), ",")
			policies[policy] = true
		}
	}
	require.Len(t, policies, 65, "64 and _OTHER")
	require.True(t, policies["_OTHER"])
}

type strange string

func (s strange) Error() string { return "strange" }
func (s strange) Class() string { return string(s) }

// So may a store that names the classes of its errors.
func TestErrorTypesAreBounded(t *testing.T) {
	te := newTelemetry(t)
	for i := range 10_000 {
		class := strange(strconv.Itoa(i))
		te.Observe(t.Context(), lock.Event{Kind: lock.EventUnknown, Name: "user", Call: "claim", Err: class})
		te.Observe(t.Context(), lock.Event{Kind: lock.EventRejected, Name: "user", Err: class})
		te.Observe(t.Context(), lock.Event{Kind: lock.EventLost, Name: "user", Err: class})
	}
	require.Less(t, len(te.scrape(t)), 300)
}
