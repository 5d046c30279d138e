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

	"github.com/httplatch/httplatch/internal/testkit/faketx"
	"github.com/httplatch/httplatch/internal/testkit/parallel"
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

func receiving(fingerprint string) func(*lock.Locker, context.Context) error {
	return func(l *lock.Locker, ctx context.Context) error {
		_, _, err := l.Once(ctx, "k", []byte(fingerprint), func(context.Context) ([]byte, error) { return []byte("receipt"), nil })
		return err
	}
}

// A handler that calls the Locker itself answers an error as a guard would.
func TestProblemOf(t *testing.T) {
	t.Parallel()
	held := func(ctx context.Context, l *lock.Locker) error { _, err := l.Acquire(ctx, "coupon=7"); return err }
	for _, tt := range []struct {
		name  string
		store func() lock.Store // a memory store unless set
		opts  []lock.Option
		state func(context.Context, *lock.Locker) error
		call  func(*lock.Locker, context.Context) error
		want  wantProblem
	}{
		{name: "held", state: held, call: doing(nil), want: wantProblem{status: 409, kind: "held", retryAfter: "1"}},
		{name: "in a cool-down", state: func(ctx context.Context, l *lock.Locker) error {
			lease, err := l.Acquire(ctx, "coupon=7")
			return errors.Join(err, lease.Settle(ctx, nil, 9*time.Second))
		}, call: doing(nil), want: wantProblem{status: 429, kind: "cooling-down", retryAfter: "9"}},
		{name: "of an unknown outcome", state: func(_ context.Context, l *lock.Locker) (err error) {
			serve(latch.Lock(l, "coupon", byUser, latch.WithUnknownHold(9*time.Second))(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
				err = latch.Unknown(r.Context())
			})), post("7"))
			return err
		}, call: doing(nil), want: wantProblem{status: 409, kind: "held", retryAfter: "9"}},
		{name: "another request", state: func(ctx context.Context, l *lock.Locker) error {
			return receiving("a")(l, ctx)
		}, call: receiving("b"), want: wantProblem{status: 422, kind: "key-reused"}},
		{name: "an operator frees it", call: func(l *lock.Locker, ctx context.Context) error {
			return l.Do(ctx, "coupon=7", func(ctx context.Context) error {
				operatorFrees(t, l.Store())
				<-ctx.Done()
				return context.Cause(ctx)
			})
		}, want: wantProblem{status: 409, kind: "outcome-unknown"}},
		{name: "no store", store: unreachable, call: doing(nil), want: wantProblem{status: 503, kind: "unavailable", retryAfter: "1"}},
		{name: "closed", state: func(ctx context.Context, l *lock.Locker) error {
			return l.Close(ctx)
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
		inBubble(t, tt.name, func(t *testing.T) {
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
				require.NoError(t, tt.state(t.Context(), l))
			}
			err := tt.call(l, t.Context())
			p := latch.ProblemOf(err)
			require.NotNil(t, p, "%v", err)
			require.ErrorIs(t, p.Err, err)
			requireProblem(t, tt.want, serve(p, post("42")))
		})
	}
	for _, err := range []error{nil, errOwn, context.Canceled, errors.ErrUnsupported, fmt.Errorf("another answer: %w", lock.ErrSettled)} {
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
		parallel.Run(t, name, func(t *testing.T) {
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

const secret = "a text that only logs may show"

// answeringClaims returns a store with this answer to each claim, whose fingerprint is the request's unless set.
func answeringClaims(entry lock.Entry, err error) lock.Store {
	return &stubStore{Store: memstore.New(), OnClaim: func(_ context.Context, _ string, c lock.Claim) (lock.Entry, error) {
		e := entry
		if e.Fingerprint == nil {
			e.Fingerprint = c.Fingerprint
		}
		return e, err
	}}
}

// TestRefusals has the refusals that no row of docs/evidence/semantics.md has.
func TestRefusals(t *testing.T) {
	t.Parallel()
	type guard = func(l *lock.Locker) guardFunc
	locks := func(key keyfunc.Func, opts ...latch.LockOption) guard {
		return func(l *lock.Locker) guardFunc { return latch.Lock(l, "user", key, opts...) }
	}
	onceBy := func(scope, key keyfunc.Func, opts ...latch.IdempotentOption) guard {
		return func(l *lock.Locker) guardFunc { return latch.Idempotent(l, scope, key, opts...) }
	}
	fails := func(err error) keyfunc.Func { return func(*http.Request) (string, error) { return "", err } }
	says := func(status int) keyfunc.Func { return fails(&keyfunc.Error{Status: status, Err: errors.New(secret)}) }
	user, byKey, empty := locks(byUser), keyfunc.Func(keyfunc.IdempotencyKey), fails(nil)
	held := answeringClaims(lock.Entry{State: lock.Held, Token: "t", Left: 30 * time.Second}, nil)
	cools := func(left time.Duration) lock.Store {
		return answeringClaims(lock.Entry{State: lock.Settled, Token: "t", Left: left}, nil)
	}
	receipt := func(text string) lock.Store {
		return answeringClaims(lock.Entry{State: lock.Settled, Token: "t", Receipt: []byte(text)}, nil)
	}
	otherVersion := func(state lock.State) lock.Store {
		return answeringClaims(lock.Entry{State: state, Token: "t", Fingerprint: []byte("\xffanother way")}, nil)
	}
	fingerprint := func(f keyfunc.Func) guard { return onceBy(byUser, byKey, latch.WithFingerprint(f)) }
	inUse := wantProblem{status: 409, kind: "held", retryAfter: "1"}
	unavailable := wantProblem{status: 503, kind: "unavailable", retryAfter: "1"}
	missing, invalid := wantProblem{status: 400, kind: "key-missing"}, wantProblem{status: 400, kind: "key-invalid"}
	notReplayable := wantProblem{status: 409, kind: "result-not-replayable"}
	cooling := func(seconds string) wantProblem { return wantProblem{429, "cooling-down", seconds, ""} }
	for name, tt := range map[string]struct {
		store lock.Store // nil: nothing is claimed
		guard guard
		want  wantProblem
	}{
		"Lock, a long lease of another process":  {held, user, inUse},
		"Lock, abandoned":                        {answeringClaims(lock.Entry{State: lock.Abandoned, Token: "t", Left: time.Hour}, nil), user, inUse},
		"Lock, cools down for a second begun":    {cools(2001 * time.Millisecond), user, cooling("3")},
		"Lock, cools down for a moment":          {cools(time.Millisecond), user, cooling("1")},
		"Lock, cools down, time left not known":  {cools(0), locks(byUser, latch.WithContentionStatus(423)), cooling("1")},
		"Lock, empty key without error":          {nil, locks(empty), missing},
		"Lock, key function says 400":            {nil, locks(says(400)), invalid},
		"Lock, key function says 403":            {nil, locks(says(403)), wantProblem{status: 403}},
		"Lock, key function says 200":            {nil, locks(says(200)), invalid},
		"Lock, outcome of the claim unknown":     {answeringClaims(lock.Entry{}, errors.New(secret)), user, unavailable},
		"Lock, store cannot, failing open":       {answeringClaims(lock.Entry{}, errors.ErrUnsupported), locks(byUser, latch.WithFailOpen()), unavailable},
		"Idempotent, held by another version":    {otherVersion(lock.Held), onceBy(byUser, byKey), wantProblem{status: 409, kind: "in-progress", retryAfter: "1"}},
		"Idempotent, abandoned by another":       {otherVersion(lock.Abandoned), onceBy(byUser, byKey), wantProblem{status: 409, kind: "outcome-unknown"}},
		"Idempotent, settled by another":         {otherVersion(lock.Settled), onceBy(byUser, byKey), notReplayable},
		"Idempotent, empty receipt":              {receipt(""), onceBy(byUser, byKey), notReplayable},
		"Idempotent, record of another version":  {receipt("\x02\x00\x00\xc8ok\x00\x00\x00\x00"), onceBy(byUser, byKey), notReplayable},
		"Idempotent, record with unknown flags":  {receipt("\x01\x80\x00\xc8ok\x00\x00\x00\x00"), onceBy(byUser, byKey), notReplayable},
		"Idempotent, damaged record":             {receipt("\x01\x00\x00\xc8ok\xff\xff\xff\xff"), onceBy(byUser, byKey), notReplayable},
		"Idempotent, outcome of the claim":       {answeringClaims(lock.Entry{}, errors.New(secret)), onceBy(byUser, byKey), unavailable},
		"Idempotent, empty scope without error":  {nil, onceBy(empty, byKey), missing},
		"Idempotent, empty key without error":    {nil, onceBy(byUser, empty), missing},
		"Idempotent, fingerprint is missing":     {nil, fingerprint(keyfunc.JSON("/absent")), missing},
		"Idempotent, fingerprint without a text": {nil, fingerprint(empty), missing},
	} {
		inBubble(t, name, func(t *testing.T) {
			memory, store := memstore.New(), tt.store
			if store == nil {
				store = memory
			}
			l := lock.New(store)
			defer end(l)
			w := serve(tt.guard(l)(mustNotRun(t)), keyed("k"))
			requireProblem(t, tt.want, w)
			require.NotContains(t, w.Body.String(), secret)
			requireEmpty(t, memory)
		})
	}
}

// TestErrorHandlerGetsTheServersWriter: no guard is around the one that refuses, so its function gets the writer of the
// server, with all that it can do. Inside another guard, that guard has to see the status.
func TestErrorHandlerGetsTheServersWriter(t *testing.T) {
	t.Parallel()
	for inside, own := range map[bool]bool{false: true, true: false} {
		w, got := httptest.NewRecorder(), http.ResponseWriter(nil)
		h := once(newLocker(t, memstore.New()), latch.WithErrorHandler(func(w http.ResponseWriter, r *http.Request, p *latch.Problem) {
			got = w
			p.ServeHTTP(w, r)
		}))(http.NotFoundHandler())
		if inside {
			h = latch.Lock(newLocker(t, memstore.New()), "user", byUser)(h)
		}
		h.ServeHTTP(w, keyed(""))
		require.Equal(t, 400, w.Code)
		require.Equal(t, own, got == http.ResponseWriter(w), "inside=%v", inside)
	}
}
