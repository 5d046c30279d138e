package middleware_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/httplatch/httplatch/client"
	"github.com/httplatch/httplatch/internal/testkit/must"
	"github.com/httplatch/httplatch/internal/testkit/parallel"
	"github.com/httplatch/httplatch/keyfunc"
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
			req := must.Get(http.NewRequestWithContext(ctx, http.MethodPost, provider.URL, http.NoBody))(t)
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

// charges makes the step "charge". ran reports whether its function has run.
func charges[T any](ctx context.Context, result T) (got T, ran bool, err error) {
	got, err = latch.Step(ctx, "charge", func(context.Context) (T, error) { ran = true; return result, nil })
	return got, ran, err
}

// A result that the type cannot read is an error, and stays for a type that can.
func TestAStepWhoseTypeHasChanged(t *testing.T) {
	t.Parallel()
	attempts := 0
	guard := once(newLocker(t, memstore.New(), lock.WithRerunAbandoned()))
	attempt := func(key string, step func(ctx context.Context)) {
		serve(guard(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			attempts++
			step(r.Context())
			w.WriteHeader(http.StatusServiceUnavailable)
		})), keyed(key))
	}
	attempt("k", func(ctx context.Context) {
		_, ran, err := charges(ctx, charge{ID: "ch_1"})
		require.NoError(t, err)
		require.True(t, ran)
	})
	attempt("k", func(ctx context.Context) {
		_, ran, err := charges(ctx, 0)
		require.ErrorContains(t, err, `the result of "charge"`)
		require.False(t, ran)
	})
	attempt("k", func(ctx context.Context) {
		_, ran, err := charges(ctx, struct{ ID string }{})
		require.ErrorContains(t, err, `unknown field "Cents"`)
		require.False(t, ran)
	})
	attempt("k", func(ctx context.Context) {
		c, ran, err := charges(ctx, charge{})
		require.NoError(t, err)
		require.False(t, ran)
		require.Equal(t, "ch_1", c.ID)
	})
	attempt("other", func(ctx context.Context) {
		_, _, err := charges[fmt.Stringer](ctx, time.Second)
		require.ErrorContains(t, err, "does not fit a *fmt.Stringer")
	})
	require.Equal(t, 5, attempts)
}

// Behind Dedupe, tomorrow's equal order would find the step of today's done.
func TestAStepBehindDedupe(t *testing.T) {
	t.Parallel()
	h := latch.Dedupe(newLocker(t, memstore.New()), byUser, time.Minute)(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		_, ran, err := charges(r.Context(), 0)
		require.ErrorContains(t, err, "behind Dedupe")
		require.False(t, ran)
	}))
	require.Equal(t, 200, serve(h, keyed("")).Code)
}

// A job answers submissions that were begun and not finished: a request whose handler has failed after a step, and
// one whose process has vanished. Repeats get that answer.
func TestFinishOfAnUnfinishedSubmission(t *testing.T) {
	t.Parallel()
	for name, dies := range map[string]bool{"failed": false, "vanished": true} {
		parallel.Run(t, name, func(t *testing.T) {
			memory := memstore.New()
			dying := &mortalStore{Store: memory}
			first := lock.New(dying, lock.WithLease(100*time.Millisecond), lock.WithBudget(50*time.Millisecond), lock.WithLogger(quiet))
			t.Cleanup(func() { end(first) })
			serve(once(first, keySecret)(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				_, _, err := charges(r.Context(), "ch_1")
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
		_, _, err := charges(r.Context(), "ch_1")
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
		must.Get(latch.Step(r.Context(), "courier", func(context.Context) (string, error) { return "of the handler", nil }))(t)
		job.key = must.Get(latch.DeriveKey(r.Context(), "parcel"))(t)
		job.ticket = must.Get(latch.Later(r.Context()))(t)
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

var keySecret = latch.WithKeySecret([]byte("0123456789abcdef"))

// derived holds a handler's view of its submission.
type derived struct {
	key     string // of the submission
	ok      bool
	charge  string // derived
	refund  string
	err     error // of charge
	attempt int
}

func derivedIn(ctx context.Context) (d derived) {
	d.key, d.ok = latch.Key(ctx)
	d.charge, d.err = latch.DeriveKey(ctx, "charge")
	d.refund, _ = latch.DeriveKey(ctx, "refund")
	d.attempt = lock.Attempt(ctx)
	return d
}

// deriving notes the keys of each run, and answers with the next status.
func deriving(seen *[]derived, statuses ...int) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		*seen = append(*seen, derivedIn(r.Context()))
		w.WriteHeader(statuses[min(len(*seen), len(statuses))-1])
	})
}

// A process of another version, or of another build, has to derive the same keys. They must never change.
func TestDerivedKeysArePinned(t *testing.T) {
	t.Parallel()
	var seen []derived
	serve(once(newLocker(t, memstore.New()), keySecret)(deriving(&seen, 201)), keyed("k"))
	require.Equal(t, []derived{{
		key: "hj_UsHC_AZQxXT4H7sXIe8IZaa7bcZbuIEULpVY6Y10", ok: true,
		charge: "OZ5ZTJ5HACFDUTKUH2MZEOBGFC5U2FG2", refund: "MCWSDKAKA7FAHKNM2XNVHJ6VRST7XEUP", attempt: 1,
	}}, seen)
}

// TestDerivedKeyOfEachAttempt: a handler that failed, or whose process died, derives the same keys when it runs again, in
// another process and over another store, too, and without its store, since no guard then keeps a repeat from running.
func TestDerivedKeyOfEachAttempt(t *testing.T) {
	parallel.Bubble(t, func(t *testing.T) {
		var seen []derived
		h := deriving(&seen, 503, 500, 201)
		guard := once(newLocker(t, memstore.New()), keySecret)
		for _, key := range []string{"k", `"k"`, "k"} {
			serve(guard(h), keyed(key))
		}
		serve(once(newLocker(t, unreachable()), latch.With(latch.WithFailOpen(), keySecret))(h), keyed("k"))

		memory := memstore.New()
		dying := &mortalStore{Store: memory}
		dead, alive := lock.New(dying), lock.New(memory, lock.WithRerunAbandoned())
		t.Cleanup(func() { end(dead); end(alive) })
		serve(once(dead, keySecret)(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
			seen = append(seen, derivedIn(r.Context()))
			dying.Dead.Store(true)
			time.Sleep(time.Minute)
			serve(once(alive, keySecret)(h), keyed("k"))
		})), keyed("k"))
		time.Sleep(25 * time.Hour) // the dead process gives up its clean-up

		require.Len(t, seen, 6)
		require.Equal(t, 2, seen[5].attempt)
		for _, d := range seen {
			d.attempt = seen[0].attempt
			require.Equal(t, seen[0], d)
		}
		require.NoError(t, seen[0].err)
		require.Regexp(t, "^[A-Z2-7]{32}$", seen[0].charge)
		require.NotEqual(t, seen[0].charge, seen[0].refund)
	})
}

// TestDerivedKeysDiffer: each difference that makes another submission makes other keys, and so
// does another secret: an attacker who knows everything else cannot compute a key.
func TestDerivedKeysDiffer(t *testing.T) {
	t.Parallel()
	path := func(r *http.Request) *http.Request { r.URL.Path += "/7"; return r }
	method := func(r *http.Request) *http.Request { r.Method = http.MethodPut; return r }
	var seen []derived
	for _, c := range []struct {
		scope   string
		secret  latch.Option
		request *http.Request
	}{
		{"42", keySecret, keyed("k")},
		{"42", keySecret, keyed("l")},
		{"43", keySecret, keyed("k")},
		{"42", keySecret, path(keyed("k"))},
		{"42", keySecret, method(keyed("k"))},
		{"42", latch.WithKeySecret([]byte("0123456789abcdeg")), keyed("k")},
	} {
		scope := func(*http.Request) (string, error) { return c.scope, nil }
		guard := latch.Idempotent(newLocker(t, memstore.New()), scope, keyfunc.IdempotencyKey, c.secret)
		serve(guard(deriving(&seen, 201)), c.request)
	}
	keys, ids := map[string]bool{}, map[string]bool{}
	for _, d := range seen {
		require.NoError(t, d.err)
		keys[d.charge], keys[d.refund], ids[d.key] = true, true, true
	}
	require.Len(t, keys, 2*len(seen))
	require.Len(t, ids, len(seen)-1, "without the secret")
}

// TestNoDerivedKey: a key that would be another one in the next run, or the same for the next submission, is none.
func TestNoDerivedKey(t *testing.T) {
	t.Parallel()
	l := newLocker(t, memstore.New())
	for name, c := range map[string]struct {
		guard func(http.Handler) http.Handler
		says  string
		ok    bool
	}{
		"no guard": {func(h http.Handler) http.Handler { return h }, "not of a handler under Idempotent", false},
		"a lock":   {latch.Lock(l, "user", byUser, keySecret), "not of a handler under Idempotent", false},
		"no key":   {latch.Idempotent(l, byUser, keyfunc.Optional(keyfunc.Header("X-Absent")), keySecret), "not of a handler under Idempotent", false},
		"Dedupe":   {latch.Dedupe(l, byUser, time.Second, keySecret), "Dedupe", false},
		"without":  {once(l), "WithKeySecret", true},
		"Dedupe within": {func(h http.Handler) http.Handler {
			return once(l, keySecret)(latch.Dedupe(l, byUser, time.Second, keySecret)(h))
		}, "Dedupe", false},
	} {
		parallel.Run(t, name, func(t *testing.T) {
			var seen []derived
			serve(c.guard(deriving(&seen, 201)), keyedBody(strings.ReplaceAll(name, " ", "-"), name))
			require.Len(t, seen, 1)
			require.ErrorContains(t, seen[0].err, c.says)
			require.Equal(t, c.ok, seen[0].ok)
			require.Equal(t, c.ok, seen[0].key != "")
			require.Empty(t, seen[0].charge)
		})
	}
	serve(once(l, keySecret)(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		_, err := latch.DeriveKey(r.Context(), "")
		require.ErrorContains(t, err, "no name")
	})), keyed("empty"))
}
