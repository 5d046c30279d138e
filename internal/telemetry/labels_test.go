package telemetry_test

import (
	"context"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/prometheus/promql/parser"
	"github.com/stretchr/testify/require"

	"github.com/httplatch/httplatch/internal/testkit/must"
	"github.com/httplatch/httplatch/keyfunc"
	"github.com/httplatch/httplatch/lock"
	"github.com/httplatch/httplatch/lock/memstore"
	latch "github.com/httplatch/httplatch/middleware"
)

// policiesOf are the policies of a scrape, each with the metrics that have it.
func policiesOf(t *testing.T, te *telemetry) map[string]map[string]bool {
	t.Helper()
	policies := make(map[string]map[string]bool)
	for sample := range te.scrape(t) {
		if _, after, ok := strings.Cut(sample, "policy="); ok {
			policy, _, _ := strings.Cut(strings.TrimRight(after, "}"), ",")
			if policies[policy] == nil {
				policies[policy] = make(map[string]bool)
			}
			policies[policy][familyOf(sample)] = true
		}
	}
	return policies
}

// askAll sends what gets each kind of answer to a guard: one that runs, its replay, one
// without a key, and one that needs none.
func askAll(t *testing.T, l *lock.Locker, path string, opts ...latch.IdempotentOption) {
	t.Helper()
	for _, key := range []keyfunc.Func{keyfunc.IdempotencyKey, keyfunc.Optional(keyfunc.IdempotencyKey)} {
		h := latch.Idempotent(l, byUser, key, opts...)(http.HandlerFunc(created))
		serve(h, post(path, "x", "X-User-ID", "42", "Idempotency-Key", "k"))
		serve(h, post(path, "x", "X-User-ID", "42", "Idempotency-Key", "k"))
		serve(h, post(path, "x", "X-User-ID", "42"))
	}
}

// The policy of a guard is its name, in every metric; without one the guards of a kind are
// one policy. The span of a wait says it too.
func TestPoliciesAreGuardsByTheirNames(t *testing.T) {
	te := newTelemetry(t)
	l := te.locker(t, memstore.New())
	askAll(t, l, "/orders", latch.WithName("orders"))
	askAll(t, l, "/payments", latch.WithName("payments"))
	named := policiesOf(t, te)
	require.ElementsMatch(t, []string{"orders", "payments"}, slices.Collect(maps.Keys(named)))
	require.Equal(t, named["orders"], named["payments"])
	for _, family := range []string{"idempotency_requests_total", "lock_hold_duration_seconds", "idempotency_receipt_size_bytes", "lock_losses_total"} {
		require.True(t, named["orders"][family], family)
	}

	askAll(t, l, "/others")
	h := latch.Dedupe(l, byUser, time.Minute)(http.HandlerFunc(created))
	serve(h, post("/orders", "x", "X-User-ID", "42"))
	all := policiesOf(t, te)
	require.ElementsMatch(t, []string{"orders", "payments", "idempotent", "dedupe"}, slices.Collect(maps.Keys(all)))
	require.Equal(t, named["orders"], all["idempotent"])
}

// guardsOfThePage are those of docs/telemetry.md.
func guardsOfThePage(locker *lock.Locker) []func(http.Handler) http.Handler {
	ordersOnce := latch.Idempotent(locker, byUser, keyfunc.IdempotencyKey, latch.WithName("orders"))
	paymentsOnce := latch.Idempotent(locker, byUser, keyfunc.IdempotencyKey, latch.WithName("payments"))
	onePerUser := latch.Lock(locker, "user", byUser)

	return []func(http.Handler) http.Handler{ordersOnce, paymentsOnce, onePerUser}
}

// The queries by which docs/telemetry.md looks at one guard find it, and no other one.
func TestQueriesOfThePageFindOneGuard(t *testing.T) {
	text := must.Get(os.ReadFile("../../docs/telemetry.md"))(t)
	_, section, ok := strings.Cut(string(text), "## One guard, one route")
	require.True(t, ok)
	section, _, _ = strings.Cut(section, "## Metrics")
	queries := regexp.MustCompile("`(sum [^`]+)`").FindAllStringSubmatch(section, -1)
	require.Len(t, queries, 4)

	te := newTelemetry(t)
	l := te.locker(t, memstore.New())
	for _, guard := range guardsOfThePage(l) {
		serve(guard(http.HandlerFunc(created)), post("/orders", "x", "X-User-ID", "42", "Idempotency-Key", "k"))
	}
	must.Run(t)(l.Once(t.Context(), lock.Key("task", "1"), nil, func(context.Context) ([]byte, error) { return nil, nil }))
	for _, q := range queries {
		expr, err := parser.ParseExpr(q[1])
		require.NoError(t, err, q[1])
		parser.Inspect(expr, func(node parser.Node, _ []parser.Node) error {
			if selector, ok := node.(*parser.VectorSelector); ok && !strings.HasPrefix(selector.Name, "http_") {
				require.InDelta(t, 1, found(te.scrape(t), selector), 0, q[1])
			}
			return nil
		})
	}
}

// found is the sum of the samples that a selector selects.
func found(samples map[string]float64, selector *parser.VectorSelector) (sum float64) {
	for sample, value := range samples {
		selected := familyOf(sample) == selector.Name
		for _, m := range selector.LabelMatchers {
			selected = selected && (m.Name == "__name__" || strings.Contains(sample, m.Name+"="+m.Value))
		}
		if selected {
			sum += value
		}
	}
	return sum
}

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

// No key, user or path is in a label: twenty thousand users have as many series as ten.
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

// A program that composes its keys itself may put anything before the "=".
func TestPoliciesAreBounded(t *testing.T) {
	te := newTelemetry(t)
	l := te.locker(t, memstore.New())
	for i := range 10_000 {
		require.NoError(t, l.Do(t.Context(), fmt.Sprintf("%d=key", i), do))
		must.Run(t)(l.Once(t.Context(), (&url.URL{Path: strconv.Itoa(i), RawQuery: "id=7"}).String(), nil, answer))
	}
	policies := policiesOf(t, te)
	require.Len(t, policies, 65, "64 and _OTHER")
	require.Contains(t, policies, "_OTHER")
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
