package middleware_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/httplatch/httplatch/internal/testkit/faketx"
	"github.com/httplatch/httplatch/keyfunc"
	"github.com/httplatch/httplatch/lock"
	"github.com/httplatch/httplatch/lock/memstore"
	latch "github.com/httplatch/httplatch/middleware"
)

var errOwn = errors.New("no such coupon")

// doing calls Do for the coupon of the request, whose work fails with err.
func doing(err error) func(*lock.Locker, context.Context) error {
	return func(l *lock.Locker, ctx context.Context) error {
		return l.Do(ctx, "coupon=7", func(context.Context) error { return err })
	}
}

func deny(context.Context, string, lock.Claim) (lock.Entry, error) {
	return lock.Entry{}, lock.ErrNotApplied
}

// receiving calls Once with this fingerprint.
func receiving(fingerprint string) func(*lock.Locker, context.Context) error {
	return func(l *lock.Locker, ctx context.Context) error {
		_, _, err := l.Once(ctx, "k", []byte(fingerprint), func(context.Context) ([]byte, error) { return []byte("receipt"), nil })
		return err
	}
}

// A handler that calls the Locker itself answers an error as a guard would.
func TestProblemOf(t *testing.T) {
	t.Parallel()
	held := func(t *testing.T, l *lock.Locker) {
		t.Helper()
		_, err := l.Acquire(t.Context(), "coupon=7")
		require.NoError(t, err)
	}
	for _, tt := range []struct {
		name  string
		store func() lock.Store // a memory store unless set
		opts  []lock.Option
		state func(*testing.T, *lock.Locker)
		call  func(*lock.Locker, context.Context) error
		want  wantProblem
	}{
		{name: "held", state: held, call: doing(nil), want: wantProblem{status: 409, kind: "held", retryAfter: "1"}},
		{name: "in a cool-down", state: func(t *testing.T, l *lock.Locker) {
			t.Helper()
			lease, err := l.Acquire(t.Context(), "coupon=7")
			require.NoError(t, err)
			require.NoError(t, lease.Settle(t.Context(), nil, 9*time.Second))
		}, call: doing(nil), want: wantProblem{status: 429, kind: "cooling-down", retryAfter: "9"}},
		{name: "of an unknown outcome", state: func(t *testing.T, l *lock.Locker) {
			t.Helper()
			serve(latch.Lock(l, "coupon", byUser, latch.WithUnknownHold(9*time.Second))(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
				require.NoError(t, latch.Unknown(r.Context()))
			})), post("7"))
		}, call: doing(nil), want: wantProblem{status: 409, kind: "held", retryAfter: "9"}},
		{name: "another request", state: func(t *testing.T, l *lock.Locker) {
			t.Helper()
			require.NoError(t, receiving("a")(l, t.Context()))
		}, call: receiving("b"), want: wantProblem{status: 422, kind: "key-reused"}},
		{name: "an operator frees it", call: func(l *lock.Locker, ctx context.Context) error {
			return l.Do(ctx, "coupon=7", func(ctx context.Context) error {
				inspector, _ := l.Store().(lock.Inspector)
				for e, err := range inspector.List(ctx) {
					if err != nil {
						return err
					}
					_, _ = inspector.Forget(ctx, e.Key, e.Token)
				}
				<-ctx.Done()
				return context.Cause(ctx)
			})
		}, want: wantProblem{status: 409, kind: "outcome-unknown"}},
		{name: "no store", store: func() lock.Store { return &stubStore{Store: memstore.New(), OnClaim: deny} }, call: doing(nil), want: wantProblem{status: 503, kind: "unavailable", retryAfter: "1"}},
		{name: "closed", state: func(t *testing.T, l *lock.Locker) {
			t.Helper()
			require.NoError(t, l.Close(t.Context()))
		}, call: doing(nil), want: wantProblem{status: 503, kind: "shutting-down", retryAfter: "1", connection: "close"}},
		{name: "a key function", call: func(*lock.Locker, context.Context) error {
			_, err := keyfunc.Header("X-Coupon")(post("42"))
			return fmt.Errorf("the coupon: %w", err)
		}, want: wantProblem{status: 400, kind: "key-missing"}},
		{name: "a commit that is refused", store: func() lock.Store {
			s := faketx.New()
			s.Next(faketx.Commit, faketx.Refuse(nil))
			return s
		}, opts: []lock.Option{lock.WithTransaction()}, call: receiving("a"), want: wantProblem{status: 500, kind: "rolled-back"}},
		{name: "a commit without an answer", store: func() lock.Store {
			s := faketx.New()
			s.Every(faketx.Commit, faketx.Hang)
			s.Every(faketx.Outcome, faketx.Hang)
			time.AfterFunc(5*time.Second, func() { s.Every(faketx.Outcome, nil) })
			return s
		}, opts: []lock.Option{lock.WithTransaction()}, call: receiving("a"), want: wantProblem{status: 503, kind: "unconfirmed", retryAfter: "1"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				var store lock.Store = memstore.New()
				if tt.store != nil {
					store = tt.store()
				}
				l := lock.New(store, append(tt.opts, lock.WithLogger(quiet), lock.WithLease(txLease), lock.WithBudget(txBudget))...)
				defer func() {
					time.Sleep(6 * time.Second) // until the database answers
					end(l)
				}()
				if tt.state != nil {
					tt.state(t, l)
				}
				err := tt.call(l, t.Context())
				p := latch.ProblemOf(err)
				require.NotNil(t, p, "%v", err)
				require.ErrorIs(t, p.Err, err)
				requireProblem(t, tt.want, serve(p, post("42")))
			})
		})
	}
	for _, err := range []error{nil, errOwn, context.Canceled, errors.ErrUnsupported} {
		require.Nil(t, latch.ProblemOf(err), "%v", err)
	}
}

// A problem that a handler sends is not the answer to its request: the guard around it does not
// keep it, in whatever format and with whatever status it is sent.
func TestAProblemOfAHandlerIsNotKept(t *testing.T) {
	t.Parallel()
	ownFormat := func(status int) func(w http.ResponseWriter, r *http.Request, p *latch.Problem) {
		return func(w http.ResponseWriter, _ *http.Request, p *latch.Problem) {
			w.WriteHeader(status)
			_, _ = fmt.Fprint(w, p.Kind())
		}
	}
	for name, tt := range map[string]struct {
		refuse func(w http.ResponseWriter, r *http.Request, p *latch.Problem)
		status int
	}{
		"ServeHTTP":          {func(w http.ResponseWriter, r *http.Request, p *latch.Problem) { p.ServeHTTP(w, r) }, 409},
		"the default format": {func(w http.ResponseWriter, r *http.Request, p *latch.Problem) { p.Respond(w, r, nil) }, 409},
		"an own format":      {func(w http.ResponseWriter, r *http.Request, p *latch.Problem) { p.Respond(w, r, ownFormat(422)) }, 422},
		"a success":          {func(w http.ResponseWriter, r *http.Request, p *latch.Problem) { p.Respond(w, r, ownFormat(200)) }, 200},
		"nothing": {func(w http.ResponseWriter, r *http.Request, p *latch.Problem) {
			p.Respond(w, r, func(http.ResponseWriter, *http.Request, *latch.Problem) {})
		}, 200},
		"of a type of its own": {func(w http.ResponseWriter, r *http.Request, p *latch.Problem) {
			(&latch.Problem{Status: 422, Type: "https://shop.example/taken", Err: p.Err}).Respond(w, r, nil)
		}, 422},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			l := newLocker(t, memstore.New())
			var e effects
			h := once(l)(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				err := l.Do(r.Context(), "coupon=7", func(context.Context) error { e.answer(w, r); return nil })
				if p := latch.ProblemOf(err); p != nil {
					tt.refuse(w, r, p)
				}
			}))
			lease, err := l.Acquire(t.Context(), "coupon=7")
			require.NoError(t, err)
			refused := serve(h, keyed("k"))
			require.Equal(t, tt.status, refused.Code)
			require.Contains(t, []string{"held", "refused"}, refused.Header().Get("Latch-Problem"))
			require.NoError(t, lease.Release(t.Context()))
			require.Equal(t, 201, serve(h, keyed("k")).Code)
			require.Equal(t, "true", serve(h, keyed("k")).Header().Get("Idempotent-Replayed"))
			e.require(t, 1)
		})
	}
}

// A key function that a handler calls refuses with a status that no kind has.
func TestAKeyErrorOfAHandlerIsNotKept(t *testing.T) {
	t.Parallel()
	var e effects
	h := once(newLocker(t, memstore.New()))(e.then(func(w http.ResponseWriter, r *http.Request) {
		latch.ProblemOf(&keyfunc.Error{Status: http.StatusNotFound, Err: errOwn}).ServeHTTP(w, r)
	}))
	for range 2 {
		requireProblem(t, wantProblem{status: 404}, serve(h, keyed("k")))
	}
	e.require(t, 2)
}

// A problem of the application itself is an answer like any other.
func TestAProblemOfTheApplicationIsKept(t *testing.T) {
	t.Parallel()
	h := once(newLocker(t, memstore.New()))(&latch.Problem{Status: 422, Type: "https://shop.example/sold-out", Title: "Sold out"})
	first := serve(h, keyed("k"))
	require.Empty(t, first.Header().Get("Latch-Problem"))
	requireReplay(t, first, serve(h, keyed("k")))
}
