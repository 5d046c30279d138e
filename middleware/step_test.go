package middleware_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/httplatch/httplatch/client"
	"github.com/httplatch/httplatch/lock"
	"github.com/httplatch/httplatch/lock/memstore"
	latch "github.com/httplatch/httplatch/middleware"
)

type charge struct {
	ID    string
	Cents int
	note  string // lost, in the first attempt too
}

// The calls of a step have the key of its name in every run, and a later attempt gets the result without a call.
func TestAStepOfAHandler(t *testing.T) {
	t.Parallel()
	var keys []string
	provider := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if keys = append(keys, r.Header.Get("Idempotency-Key")); len(keys) == 1 {
			w.WriteHeader(http.StatusBadGateway)
		}
	}))
	defer provider.Close()
	calls := &http.Client{Transport: client.Transport(provider.Client().Transport, client.WithAttempts(1))}
	var derivedKey string
	var results []charge
	h := once(newLocker(t, memstore.New(), lock.WithRerunAbandoned()), keySecret)(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		c, err := latch.Step(r.Context(), "charge", func(ctx context.Context) (charge, error) {
			derivedKey, _ = latch.DeriveKey(ctx, "charge")
			req, err := http.NewRequestWithContext(ctx, http.MethodPost, provider.URL, http.NoBody)
			require.NoError(t, err)
			resp, err := calls.Do(req)
			if err != nil {
				return charge{}, err
			}
			defer func() { _ = resp.Body.Close() }()
			if resp.StatusCode != http.StatusOK {
				return charge{}, errors.New(resp.Status)
			}
			return charge{ID: "ch_1", Cents: 20_00, note: "not exported"}, nil
		})
		if err != nil {
			w.WriteHeader(http.StatusServiceUnavailable)
			return
		}
		if results = append(results, c); len(results) == 1 {
			w.WriteHeader(http.StatusInternalServerError)
			return
		}
		w.WriteHeader(http.StatusCreated)
	}))
	for _, status := range []int{503, 500, 201, 201} {
		require.Equal(t, status, serve(h, keyed("k")).Code)
	}
	require.Equal(t, []string{derivedKey, derivedKey}, keys)
	require.Equal(t, []charge{{ID: "ch_1", Cents: 20_00}, {ID: "ch_1", Cents: 20_00}}, results)
}

// A result that the type cannot read is an error, and stays for a type that can.
func TestAStepWhoseTypeHasChanged(t *testing.T) {
	t.Parallel()
	attempts := 0
	run := func(steps ...func(ctx context.Context) error) {
		l := newLocker(t, memstore.New(), lock.WithRerunAbandoned())
		h := once(l)(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			attempts++
			if err := steps[0](r.Context()); err != nil {
				t.Error(err)
			}
			steps = steps[1:]
			w.WriteHeader(http.StatusServiceUnavailable)
		}))
		for range len(steps) {
			serve(h, keyed("k"))
		}
	}
	keeps := func(ctx context.Context) error {
		_, err := latch.Step(ctx, "charge", func(context.Context) (charge, error) { return charge{ID: "ch_1"}, nil })
		return err
	}
	refused := func(says string, step func(ctx context.Context) error) func(ctx context.Context) error {
		return func(ctx context.Context) error {
			require.ErrorContains(t, step(ctx), says)
			return nil
		}
	}
	run(keeps,
		refused(`the result of "charge", kept by another version`, func(ctx context.Context) error {
			_, err := latch.Step(ctx, "charge", func(context.Context) (int, error) { t.Error("it ran"); return 0, nil })
			return err
		}),
		refused(`unknown field "Cents"`, func(ctx context.Context) error {
			_, err := latch.Step(ctx, "charge", func(context.Context) (struct{ ID string }, error) {
				t.Error("it ran")
				return struct{ ID string }{}, nil
			})
			return err
		}),
		func(ctx context.Context) error {
			c, err := latch.Step(ctx, "charge", func(context.Context) (charge, error) { t.Error("it ran"); return charge{}, nil })
			require.Equal(t, "ch_1", c.ID)
			return err
		})
	run(refused("is not read from its own JSON", func(ctx context.Context) error {
		_, err := latch.Step(ctx, "charge", func(context.Context) (fmt.Stringer, error) { return time.Second, nil })
		return err
	}))
	require.Equal(t, 5, attempts)
}

// Behind Dedupe, tomorrow's equal order would find the step of today's done.
func TestAStepBehindDedupe(t *testing.T) {
	t.Parallel()
	var err error
	h := latch.Dedupe(newLocker(t, memstore.New()), byUser, time.Minute)(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		_, err = latch.Step(r.Context(), "charge", func(context.Context) (int, error) { t.Error("it ran"); return 0, nil })
	}))
	serve(h, keyed(""))
	require.ErrorContains(t, err, "behind Dedupe")
}

// After a takeover the handler goes on with the steps that its dead process has made.
func TestAStepAfterATakeover(t *testing.T) {
	t.Parallel()
	memory := memstore.New()
	dying := &mortalStore{Store: memory}
	dead := lock.New(dying, lock.WithLease(100*time.Millisecond), lock.WithBudget(50*time.Millisecond))
	t.Cleanup(func() { end(dead) })
	calls := 0
	step := func(ctx context.Context) (int, error) {
		return latch.Step(ctx, "charge", func(context.Context) (int, error) { calls++; return calls, nil })
	}
	serve(once(dead)(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		_, err := step(r.Context())
		require.NoError(t, err)
		dying.Dead.Store(true)
	})), keyed("k"))
	alive := once(newLocker(t, memory, lock.WithRerunAbandoned(), lock.WithWait(10*time.Second)))
	w := serve(alive(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		n, err := step(r.Context())
		require.NoError(t, err)
		require.Equal(t, 2, lock.Attempt(r.Context()))
		_, _ = fmt.Fprint(w, n)
	})), keyed("k"))
	require.Equal(t, "1", w.Body.String())
}

// A job answers submissions that were begun and not finished: a request whose handler has failed after a step, and
// one whose process has vanished. Repeats get that answer.
func TestFinishOfAnUnfinishedSubmission(t *testing.T) {
	t.Parallel()
	for name, dies := range map[string]bool{"failed": false, "vanished": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			memory := memstore.New()
			dying := &mortalStore{Store: memory}
			first := lock.New(dying, lock.WithLease(100*time.Millisecond), lock.WithBudget(50*time.Millisecond), lock.WithLogger(quiet))
			t.Cleanup(func() { end(first) })
			serve(once(first, keySecret)(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				_, err := latch.Step(r.Context(), "charge", func(context.Context) (string, error) { return "ch_1", nil })
				require.NoError(t, err)
				dying.Dead.Store(dies)
				w.WriteHeader(http.StatusServiceUnavailable)
			})), keyed("k"))
			l := newLocker(t, memory)
			var found []lock.Unfinished
			require.Eventually(t, func() bool {
				found = nil
				for u, err := range l.Unfinished(t.Context()) {
					require.NoError(t, err)
					found = append(found, u)
				}
				return len(found) == 1
			}, 10*time.Second, 10*time.Millisecond)
			u := found[0]
			require.Equal(t, []any{"idempotent", "42", "POST", "/orders", !dies}, []any{u.Guard, u.Label, u.Method, u.Path, u.Freed})
			require.Len(t, u.Steps, 1)
			require.JSONEq(t, `"ch_1"`, string(u.Steps[0].Result))
			require.Len(t, u.Steps[0].Key, 32, "the derived key, by which the provider knows the charge")

			answer := latch.Answer{Status: http.StatusConflict, Body: []byte("refunded")}
			require.NoError(t, latch.Finish(t.Context(), l, u.Ticket, answer))
			require.NoError(t, latch.Finish(t.Context(), l, u.Ticket, answer), "again")
			require.ErrorIs(t, latch.Finish(t.Context(), l, u.Ticket, latch.Answer{Status: 201}), lock.ErrSettled)
			w := serve(once(l)(mustNotRun(t)), keyed("k"))
			require.Equal(t, "refunded", w.Body.String())
			require.Equal(t, http.StatusConflict, w.Code)
			for u, err := range l.Unfinished(t.Context()) {
				t.Error("it is finished", u, err)
			}
		})
	}
}

// A request that was repeated meanwhile has its own answer.
func TestFinishOfASubmissionThatWasRepeated(t *testing.T) {
	t.Parallel()
	l := newLocker(t, memstore.New(), lock.WithRerunAbandoned())
	status := http.StatusServiceUnavailable
	h := once(l)(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, err := latch.Step(r.Context(), "charge", func(context.Context) (string, error) { return "ch_1", nil })
		require.NoError(t, err)
		w.WriteHeader(status)
	}))
	serve(h, keyed("k"))
	for u, err := range l.Unfinished(t.Context()) {
		require.NoError(t, err)
		status = http.StatusCreated
		serve(h, keyed("k"))
		require.ErrorIs(t, latch.Finish(t.Context(), l, u.Ticket, latch.Answer{Status: 409}), lock.ErrLost)
	}
	require.Equal(t, http.StatusCreated, serve(h, keyed("k")).Code)
}

// The job of a ticket has steps of its own: after a failure it goes on, and ends with the final answer. It does not see
// the steps of the handler, so what it needs is in the job.
func TestStepsOfAWorker(t *testing.T) {
	t.Parallel()
	l := newLocker(t, memstore.New(), lock.WithRerunAbandoned())
	var job struct{ ticket, key string }
	h := once(l, keySecret)(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, err := latch.Step(r.Context(), "courier", func(context.Context) (string, error) { return "of the handler", nil })
		require.NoError(t, err)
		job.key, err = latch.DeriveKey(r.Context(), "parcel")
		require.NoError(t, err)
		job.ticket, err = latch.Later(r.Context())
		require.NoError(t, err)
		w.WriteHeader(http.StatusAccepted)
	}))
	require.Equal(t, http.StatusAccepted, serve(h, keyed("k")).Code)
	var keys []string
	failed := errors.New("failed")
	work := func(end error) error {
		_, _, err := l.Once(t.Context(), lock.Key("job", job.ticket), nil, func(ctx context.Context) ([]byte, error) {
			parcel, err := latch.Step(ctx, "courier", func(context.Context) (string, error) {
				keys = append(keys, job.key)
				return "p_1", nil
			})
			if err = errors.Join(err, end); err != nil {
				return nil, err
			}
			return nil, latch.Finish(ctx, l, job.ticket, latch.Answer{Status: http.StatusCreated, Body: []byte(parcel)})
		})
		return err
	}
	require.ErrorIs(t, work(failed), failed)
	require.NoError(t, work(nil))
	require.Len(t, keys, 1)
	w := serve(h, keyed("k"))
	require.Equal(t, http.StatusCreated, w.Code)
	require.Equal(t, "p_1", w.Body.String())
}
