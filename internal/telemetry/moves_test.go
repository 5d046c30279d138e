package telemetry_test

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil/promlint"
	"github.com/stretchr/testify/require"

	latchtest "github.com/httplatch/httplatch/httptest"
	"github.com/httplatch/httplatch/internal/testkit/must"
	"github.com/httplatch/httplatch/keyfunc"
	"github.com/httplatch/httplatch/lock"
	"github.com/httplatch/httplatch/lock/memstore"
	latch "github.com/httplatch/httplatch/middleware"
)

var (
	byUser    = keyfunc.Header("X-User-ID")
	do        = func(context.Context) error { return nil }
	untilLost = func(ctx context.Context) error { <-ctx.Done(); return nil }
	answer    = func(context.Context) ([]byte, error) { return []byte("answer"), nil }
	errFailed = errors.New("failed")
)

// evicting is a store whose server evicts locks.
type evicting struct{ lock.Store }

func (e evicting) Describe() lock.Description {
	about := lock.Describe(e.Store)
	about.Check = func(context.Context) error { return evicts{errFailed} }
	return about
}

// noSteps is a store that serves no step.
type noSteps struct{ lock.Store }

func (s noSteps) Claim(ctx context.Context, key string, c lock.Claim) (lock.Entry, error) {
	if strings.Contains(key, "/") {
		return lock.Entry{}, errors.Join(lock.ErrNotApplied, evicts{errFailed})
	}
	return s.Store.Claim(ctx, key, c)
}

func hashOf(key string) string {
	sum := sha256.Sum256([]byte(key))
	return hex.EncodeToString(sum[:])
}

type evicts struct{ error }

func (evicts) Class() string { return "EVICTION" }

// situation is something that happens, and the samples that it moves by one.
type situation struct {
	name  string
	makes func(t *testing.T, te *telemetry)
	moves []string
}

// situations are all that can happen to a lock. Together they move every metric.
var situations = []situation{
	{"claim", func(t *testing.T, te *telemetry) {
		l := te.locker(t, memstore.New())
		require.NoError(t, l.Do(t.Context(), "user=42", func(context.Context) error {
			s := te.scrape(t)
			require.InDelta(t, 1, s["lock_inflight"], 0)
			require.InDelta(t, 1, s["idempotency_store_entries"], 0)
			require.Positive(t, s["idempotency_store_size_bytes"])
			return nil
		}))
	}, []string{
		"lock_acquisitions_total{outcome=acquired,policy=user}", "lock_acquire_duration_seconds{outcome=acquired,policy=user}",
		"lock_hold_duration_seconds{end=released,policy=user}", "lock_validity_remaining_seconds{policy=user}",
	}},
	{"store fails its check", func(t *testing.T, te *telemetry) {
		l := te.locker(t, evicting{memstore.New()})
		time.Sleep(time.Minute)
		require.NoError(t, l.Do(t.Context(), "user=42", do))
		synctest.Wait()
		require.InDelta(t, 1, te.scrape(t)["lock_store_trouble{error_type=EVICTION}"], 0)
	}, []string{"lock_acquisitions_total{outcome=acquired,policy=user}"}},
	{"a submission is not finished", func(t *testing.T, te *telemetry) {
		l := te.locker(t, memstore.New())
		_, _, err := l.Once(t.Context(), "task=1", nil, func(ctx context.Context) ([]byte, error) {
			_, err := lock.Step(ctx, "charge", answer)
			return nil, errors.Join(err, errFailed)
		})
		require.ErrorIs(t, err, errFailed)
		for _, err := range l.Unfinished(t.Context()) {
			require.NoError(t, err)
		}
		require.InDelta(t, 1, te.scrape(t)["idempotency_unfinished"], 0)
	}, []string{
		"idempotency_requests_total{outcome=executed,policy=task}", "idempotency_acquire_duration_seconds{outcome=executed,policy=task}",
		"lock_hold_duration_seconds{end=released,policy=task}", "lock_validity_remaining_seconds{policy=task}",
	}},
	{"a step is not served, after a wait", func(t *testing.T, te *telemetry) {
		store := memstore.New()
		l := te.locker(t, noSteps{store}, lock.WithWait(time.Minute))
		_, err := store.Claim(t.Context(), "once:"+hashOf("task=1"), lock.Claim{Token: "another process", Lease: time.Second})
		require.NoError(t, err)
		_, _, err = l.Once(t.Context(), "task=1", nil, func(ctx context.Context) ([]byte, error) {
			require.ErrorIs(t, must.Err(lock.Step(ctx, "charge", answer)), lock.ErrUnavailable)
			return nil, nil
		})
		require.NoError(t, err)
		require.Len(t, te.named("idempotency wait"), 1)
	}, []string{
		"idempotency_requests_total{outcome=executed,policy=task}", "idempotency_acquire_duration_seconds{outcome=executed,policy=task}",
		"idempotency_wait_duration_seconds{outcome=executed,policy=task}", "idempotency_receipt_size_bytes{policy=task}",
		"lock_hold_duration_seconds{end=settled,policy=task}", "lock_validity_remaining_seconds{policy=task}",
		"lock_call_failures_total{error_type=EVICTION,operation=step,outcome=error}",
	}},
	{"contention", func(t *testing.T, te *telemetry) {
		l := te.locker(t, memstore.New())
		require.NoError(t, l.Do(t.Context(), "user=42", func(ctx context.Context) error {
			require.ErrorIs(t, l.Do(ctx, "user=42", do), lock.ErrHeld)
			return nil
		}))
	}, []string{
		"lock_acquisitions_total{outcome=contended,policy=user}", "lock_acquire_duration_seconds{outcome=contended,policy=user}",
	}},
	{"cool-down", func(t *testing.T, te *telemetry) {
		l := te.locker(t, memstore.New())
		require.NoError(t, must.Get(l.Acquire(t.Context(), "user=42"))(t).Settle(t.Context(), nil, time.Minute))
		require.ErrorIs(t, l.Do(t.Context(), "user=42", do), lock.ErrSettled)
	}, []string{"lock_acquisitions_total{outcome=cooling_down,policy=user}", "lock_hold_duration_seconds{end=settled,policy=user}"}},
	{"wait", func(t *testing.T, te *telemetry) {
		l := te.locker(t, memstore.New(), lock.WithWait(time.Minute))
		e := must.Get(l.Acquire(t.Context(), "user=42"))(t)
		time.AfterFunc(time.Second, func() { _ = e.Release(t.Context()) })
		require.NoError(t, l.Do(t.Context(), "user=42", do))
	}, []string{"lock_wait_duration_seconds{outcome=acquired,policy=user}"}},
	{"wait in vain", func(t *testing.T, te *telemetry) {
		l := te.locker(t, memstore.New(), lock.WithWait(time.Second))
		require.NoError(t, l.Do(t.Context(), "user=42", func(ctx context.Context) error {
			require.ErrorIs(t, l.Do(ctx, "user=42", do), lock.ErrHeld)
			return nil
		}))
	}, []string{
		"lock_acquisitions_total{outcome=timeout,policy=user}", "lock_wait_duration_seconds{outcome=timeout,policy=user}",
	}},
	{"caller leaves", func(t *testing.T, te *telemetry) {
		l := te.locker(t, memstore.New(), lock.WithWait(time.Minute))
		require.NoError(t, l.Do(t.Context(), "user=42", func(ctx context.Context) error {
			ctx, cancel := context.WithTimeout(ctx, time.Second)
			defer cancel()
			require.ErrorIs(t, l.Do(ctx, "user=42", do), context.DeadlineExceeded)
			return nil
		}))
	}, []string{"lock_acquisitions_total{outcome=cancelled,policy=user}"}},
	{"shutdown", func(t *testing.T, te *telemetry) {
		l := te.locker(t, memstore.New(), lock.WithWait(time.Minute))
		e := must.Get(l.Acquire(t.Context(), "user=42"))(t)
		closed := make(chan error)
		time.AfterFunc(time.Second, func() { closed <- l.Close(t.Context()) })
		require.ErrorIs(t, l.Do(t.Context(), "user=42", do), lock.ErrClosed)
		require.NoError(t, e.Release(t.Context()))
		require.NoError(t, <-closed)
	}, []string{"lock_acquisitions_total{outcome=closed,policy=user}"}},
	{"renewal", func(t *testing.T, te *telemetry) {
		l := te.locker(t, memstore.New())
		require.NoError(t, l.Do(t.Context(), "user=42", func(context.Context) error {
			time.Sleep(lease / 2)
			return nil
		}))
	}, []string{"lock_renewals_total{outcome=ok,policy=user}"}},
	{"renewal without an answer", func(t *testing.T, te *telemetry) {
		l := te.locker(t, latchtest.LoseRequest(memstore.New(), latchtest.Renew, 1000))
		require.NoError(t, l.Do(t.Context(), "user=42", func(context.Context) error {
			time.Sleep(lease/3 + 2*budget)
			return nil
		}))
	}, []string{
		"lock_renewals_total{outcome=unknown,policy=user}",
		"lock_call_failures_total{error_type=_OTHER,operation=renew,outcome=unknown}",
	}},
	{"loss by removal", func(t *testing.T, te *telemetry) {
		store := memstore.New()
		l := te.locker(t, store)
		require.ErrorIs(t, l.Do(t.Context(), "user=42", func(ctx context.Context) error {
			forget(t, store)
			<-ctx.Done()
			return nil
		}), lock.ErrLost)
	}, []string{"lock_losses_total{policy=user,reason=taken}", "lock_hold_duration_seconds{end=lost,policy=user}"}},
	{"loss by a silent store", func(t *testing.T, te *telemetry) {
		l := te.locker(t, latchtest.Stall(memstore.New(), latchtest.Renew, 1000, time.Minute))
		require.ErrorIs(t, l.Do(t.Context(), "user=42", untilLost), lock.ErrLost)
	}, []string{"lock_losses_total{policy=user,reason=expired}"}},
	{"held for too long", func(t *testing.T, te *telemetry) {
		l := te.locker(t, memstore.New(), lock.WithMaxHold(2*lease))
		require.ErrorIs(t, l.Do(t.Context(), "user=42", untilLost), lock.ErrLost)
	}, []string{"lock_losses_total{policy=user,reason=max_hold}"}},
	{"recovery: the answer was lost", func(t *testing.T, te *telemetry) {
		l := te.locker(t, latchtest.LoseReply(memstore.New(), latchtest.Claim, 1))
		require.NoError(t, l.Do(t.Context(), "user=42", do))
	}, []string{"lock_recoveries_total{kind=reclaimed,policy=user}", "lock_acquisitions_total{outcome=acquired,policy=user}"}},
	{"unknown, and cleaned up", func(t *testing.T, te *telemetry) {
		l := te.locker(t, latchtest.LoseReply(latchtest.LoseRequest(memstore.New(), latchtest.Release, 1), latchtest.Claim, 8))
		require.ErrorIs(t, l.Do(t.Context(), "user=42", do), lock.ErrUnknown)
		require.InDelta(t, 1, te.scrape(t)["lock_reaper_backlog"], 0)
		time.Sleep(time.Minute)
	}, []string{
		"lock_acquisitions_total{outcome=unknown,policy=user}", "lock_recoveries_total{kind=removed,policy=user}",
		"lock_call_failures_total{error_type=_OTHER,operation=claim,outcome=unknown}",
	}},
	{"store down", func(t *testing.T, te *telemetry) {
		l := te.locker(t, memstore.New(memstore.WithLimits(1, 1)))
		require.ErrorIs(t, l.Do(t.Context(), "user=42", do), lock.ErrFull)
	}, []string{
		"lock_acquisitions_total{outcome=error,policy=user}",
		"lock_call_failures_total{error_type=full,operation=claim,outcome=error}",
	}},
	{"release without an answer", func(t *testing.T, te *telemetry) {
		l := te.locker(t, latchtest.LoseReply(memstore.New(), latchtest.Release, 8))
		require.NoError(t, l.Do(t.Context(), "user=42", do))
		time.Sleep(time.Minute)
	}, []string{"lock_call_failures_total{error_type=_OTHER,operation=release,outcome=unknown}"}},
	{"settle without an answer", func(t *testing.T, te *telemetry) {
		l := te.locker(t, latchtest.LoseRequest(memstore.New(), latchtest.Settle, 8))
		must.Run(t)(l.Once(t.Context(), "invoice=7", nil, answer))
		time.Sleep(time.Minute)
	}, []string{"lock_call_failures_total{error_type=_OTHER,operation=settle,outcome=unknown}"}},
	{"fail open", func(t *testing.T, te *telemetry) {
		l := te.locker(t, memstore.New(memstore.WithLimits(1, 1)))
		h := latch.Lock(l, "user", byUser, latch.WithFailOpen())(http.HandlerFunc(created))
		require.Equal(t, http.StatusCreated, serve(h, post("/orders", "", "X-User-ID", "42")).Code)
	}, []string{"lock_bypasses_total{policy=user}", "lock_acquisitions_total{outcome=error,policy=user}"}},
	{"requests without a key", func(t *testing.T, te *telemetry) {
		l := te.locker(t, memstore.New())
		h := latch.Lock(l, "user", byUser)(http.HandlerFunc(created))
		require.Equal(t, http.StatusBadRequest, serve(h, post("/orders", "")).Code)
		h = latch.Lock(l, "user", keyfunc.Optional(byUser))(http.HandlerFunc(created))
		require.Equal(t, http.StatusCreated, serve(h, post("/orders", "")).Code)
		h = latch.Idempotent(l, keyfunc.Global, keyfunc.IdempotencyKey, latch.WithBodyLimits(1, 1))(http.HandlerFunc(created))
		require.Equal(t, http.StatusBadRequest, serve(h, post("/orders", "")).Code)
		require.Equal(t, http.StatusBadRequest, serve(h, post("/orders", "", "Idempotency-Key", `"`)).Code)
		require.Equal(t, http.StatusRequestEntityTooLarge, serve(h, post("/orders", "long", "Idempotency-Key", "k")).Code)
		h = latch.Idempotent(l, keyfunc.Global, keyfunc.Optional(keyfunc.IdempotencyKey))(http.HandlerFunc(created))
		require.Equal(t, http.StatusCreated, serve(h, post("/orders", "")).Code)
	}, []string{
		"lock_acquisitions_total{outcome=key_missing,policy=user}", "lock_acquisitions_total{outcome=skipped,policy=user}",
		"idempotency_requests_total{outcome=key_missing,policy=idempotent}",
		"idempotency_requests_total{outcome=key_invalid,policy=idempotent}",
		"idempotency_requests_total{outcome=body_too_large,policy=idempotent}",
		"idempotency_requests_total{outcome=skipped,policy=idempotent}",
	}},
	{"run once, replay, mismatch", func(t *testing.T, te *telemetry) {
		l := te.locker(t, memstore.New())
		h := latch.Idempotent(l, keyfunc.Global, keyfunc.IdempotencyKey)(http.HandlerFunc(created))
		require.Equal(t, http.StatusCreated, serve(h, post("/orders", "a", "Idempotency-Key", "k")).Code)
		time.Sleep(time.Minute)
		require.Equal(t, "true", serve(h, post("/orders", "a", "Idempotency-Key", "k")).Header().Get("Idempotent-Replayed"))
		require.Equal(t, http.StatusUnprocessableEntity, serve(h, post("/orders", "b", "Idempotency-Key", "k")).Code)
	}, []string{
		"idempotency_requests_total{outcome=executed,policy=idempotent}",
		"idempotency_requests_total{outcome=replayed,policy=idempotent}",
		"idempotency_requests_total{outcome=mismatch,policy=idempotent}",
		"idempotency_acquire_duration_seconds{outcome=replayed,policy=idempotent}",
		"idempotency_replay_age_seconds{policy=idempotent}", "idempotency_receipt_size_bytes{policy=idempotent}",
		"lock_hold_duration_seconds{end=settled,policy=idempotent}",
	}},
	{"still running", func(t *testing.T, te *telemetry) {
		l := te.locker(t, memstore.New())
		_, _, err := l.Once(t.Context(), "invoice=7", nil, func(ctx context.Context) ([]byte, error) {
			_, _, err := l.Once(ctx, "invoice=7", nil, answer)
			require.ErrorIs(t, err, lock.ErrHeld)
			return nil, nil
		})
		require.NoError(t, err)
	}, []string{"idempotency_requests_total{outcome=in_progress,policy=invoice}"}},
	{"wait for the receipt", func(t *testing.T, te *telemetry) {
		l := te.locker(t, memstore.New(), lock.WithWait(time.Minute))
		go func() {
			_, _, _ = l.Once(t.Context(), "invoice=7", nil, func(context.Context) ([]byte, error) {
				time.Sleep(time.Second)
				return nil, nil
			})
		}()
		synctest.Wait()
		must.Replay(t)(l.Once(t.Context(), "invoice=7", nil, answer))
	}, []string{
		"idempotency_wait_duration_seconds{outcome=replayed,policy=invoice}",
	}},
	{"abandoned, and taken over", func(t *testing.T, te *telemetry) {
		store := memstore.New()
		die(t, te, store)
		_, _, err := te.locker(t, store).Once(t.Context(), "invoice=7", nil, answer)
		require.ErrorIs(t, err, lock.ErrAbandoned)
		must.Run(t)(te.locker(t, store, lock.WithRerunAbandoned()).Once(t.Context(), "invoice=7", nil, answer))
	}, []string{
		"idempotency_requests_total{outcome=abandoned,policy=invoice}", "lock_recoveries_total{kind=taken_over,policy=invoice}",
	}},
}

func created(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusCreated) }

// forget removes all entries, as an operator does or an eviction.
func forget(t *testing.T, store lock.Store) {
	t.Helper()
	inspector := store.(lock.Inspector)
	for e, err := range inspector.List(t.Context()) {
		require.NoError(t, err)
		must.Get(inspector.Forget(t.Context(), e.Key, e.Token))(t)
	}
}

// die runs work in a process that ends in the middle of it.
func die(t *testing.T, te *telemetry, store lock.Store) {
	t.Helper()
	cut := latchtest.LoseRequest(latchtest.LoseRequest(store, latchtest.Release, 1000), latchtest.Renew, 1000)
	l := te.locker(t, cut)
	_, _, err := l.Once(t.Context(), "invoice=7", nil, func(context.Context) ([]byte, error) { return nil, errFailed })
	require.ErrorIs(t, err, errFailed)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	require.Error(t, l.Close(ctx))
	time.Sleep(2 * lease)
}

func TestEverySituationMovesItsMetrics(t *testing.T) {
	for _, s := range situations {
		t.Run(s.name, func(t *testing.T) {
			moved := happen(t, s)
			for _, sample := range s.moves {
				require.Positive(t, moved[sample], "%s in %v", sample, moved)
			}
		})
	}
}

// happen makes s happen, and returns the scrape after it.
func happen(t *testing.T, s situation) (after map[string]float64) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		te := newTelemetry(t)
		s.makes(t, te)
		time.Sleep(3 * time.Minute) // for clean-ups, and what stalls
		after = te.scrape(t)
		require.Empty(t, must.Get(promlint.NewWithMetricFamilies(te.gather(t)).Lint())(t))
	})
	return after
}

// A counter that alerts watch is there, at 0, before what it counts.
func TestAlertsHaveAZeroToIncreaseFrom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		te := newTelemetry(t)
		require.NoError(t, te.locker(t, memstore.New()).Do(t.Context(), "user=42", do))
		s := te.scrape(t)
		for _, sample := range []string{
			"lock_losses_total{policy=user,reason=taken}", "lock_losses_total{policy=user,reason=expired}",
			"lock_losses_total{policy=user,reason=max_hold}", "lock_bypasses_total{policy=user}",
			"lock_acquisitions_total{outcome=unknown,policy=user}", "lock_recoveries_total{kind=removed,policy=user}",
		} {
			value, ok := s[sample]
			require.True(t, ok, sample)
			require.Zero(t, value, sample)
		}
	})
}
