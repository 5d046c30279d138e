package middleware_test

import (
	"bytes"
	"context"
	"maps"
	"net/http"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-chi/chi/v5"
	"github.com/stretchr/testify/require"

	"github.com/httplatch/httplatch/internal/testkit/must"
	"github.com/httplatch/httplatch/internal/testkit/parallel"
	"github.com/httplatch/httplatch/lock"
	"github.com/httplatch/httplatch/lock/memstore"
	latch "github.com/httplatch/httplatch/middleware"
)

// TestRefusalOnAnotherGoroutine: the inner guard may be behind a TimeoutHandler.
func TestRefusalOnAnotherGoroutine(t *testing.T) {
	t.Parallel()
	l := newLocker(t, memstore.New())
	hold(t, l)
	var e effects
	h := once(l)(http.TimeoutHandler(latch.Lock(l, "user", byUser)(http.HandlerFunc(e.answer)), time.Minute, ""))
	require.Equal(t, 409, serve(h, keyed("k")).Code)
	requireProblem(t, wantProblem{status: 409, kind: "held", retryAfter: "1"}, serve(h, keyed("k")))
	e.require(t, 0)
}

func TestWrongOrderIsLoggedOnce(t *testing.T) {
	var out bytes.Buffer
	l := newLocker(t, memstore.New(), logging(&out))

	right := once(l)(latch.Lock(l, "user", byUser, latch.WithCooldown(time.Hour))(http.HandlerFunc(created)))
	require.Equal(t, 201, serve(right, keyed("k")).Code)
	require.Empty(t, out.String())

	wrong := latch.Lock(l, "order", byUser, latch.WithCooldown(time.Nanosecond))(once(l)(http.HandlerFunc(created)))
	for range 3 {
		require.Equal(t, 201, serve(wrong, keyed("k2")).Code)
		time.Sleep(time.Microsecond)
	}
	requireLine(t, &out, "ERROR", "idempotent", "mount Idempotent and Dedupe outside Lock")
}

// A batch reports the refusal of one of its steps in its own answer, which is kept.
func TestInnerRefusalSwallowed(t *testing.T) {
	l := newLocker(t, memstore.New())
	hold(t, l)
	var e effects
	inner := latch.Lock(l, "user", byUser)(http.HandlerFunc(e.answer))
	h := once(l)(e.then(func(w http.ResponseWriter, r *http.Request) {
		serve(inner, r)
		w.WriteHeader(207)
	}))
	requireReplay(t, serve(h, keyed("k")), serve(h, keyed("k")))
	e.require(t, 1)
}

// A process is killed in a guarded handler. The repeat takes over, and an inner Lock refuses it,
// since another request of the user runs. The next repeats are refused for the same reason, and not
// because of the takeover, and the first one after that request runs.
func TestARepeatRefusedByAnInnerLockIsTakenOverAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		memory := memstore.New()
		dying := &mortalStore{Store: memory}
		rerun := []lock.Option{lock.WithLogger(quiet), lock.WithRerunAbandoned()}
		dead, alive := lock.New(dying, rerun...), lock.New(&mortalStore{Store: memory}, rerun...)
		gone := make(chan struct{})
		go func() {
			serve(once(dead)(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() })), keyed("k"))
			close(gone)
		}()
		synctest.Wait()
		dying.Dead.Store(true)
		<-gone
		time.Sleep(time.Second) // the lease of the dead ends in the store, too

		other := must.Get(alive.Acquire(t.Context(), lock.Key("user", "42")))(t)
		var e effects
		h := once(alive)(latch.Lock(alive, "user", byUser)(e.then(func(w http.ResponseWriter, r *http.Request) {
			require.Equal(t, 2, lock.Attempt(r.Context()))
			w.WriteHeader(http.StatusCreated)
		})))
		for range 3 {
			requireProblem(t, wantProblem{status: 409, kind: "held", retryAfter: "1"}, serve(h, keyed("k")))
			time.Sleep(time.Second)
		}
		require.NoError(t, other.Release(t.Context()))
		require.Equal(t, http.StatusCreated, serve(h, keyed("k")).Code)
		e.require(t, 1)
		dying.Dead.Store(false)
		end(dead)
		end(alive)
	})
}

// A handler has released the lock of its guard. An inner guard claims the same key, since the outer lock has ended.
func TestInnerLockAfterTheOuterOneHasEnded(t *testing.T) {
	t.Parallel()
	l := newLocker(t, memstore.New())
	user := latch.Lock(l, "user", byUser)
	for released, want := range map[bool]int{true: 409, false: 201} { // the inner guard refuses, or is passed
		h := user(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			lease, ok := lock.FromContext(r.Context())
			require.True(t, ok)
			if released {
				require.NoError(t, lease.Release(r.Context()))
				other := must.Get(l.Acquire(t.Context(), lock.Key("user", "42")))(t)
				defer func() { require.NoError(t, other.Release(t.Context())) }()
				r = r.WithContext(context.WithoutCancel(r.Context()))
			}
			user(http.HandlerFunc(created)).ServeHTTP(w, r)
		}))
		require.Equal(t, want, serve(h, keyed("k")).Code)
	}
}

// twice are guards that meet their own key when they are mounted twice: one value at
// two places, and two values of the same settings.
var twice = map[string]func(l *lock.Locker) (outer, inner guardFunc){
	"Lock": func(l *lock.Locker) (outer, inner guardFunc) { return both(latch.Lock(l, "user", byUser)) },
	"Lock with a cool-down": func(l *lock.Locker) (outer, inner guardFunc) {
		return both(latch.Lock(l, "user", byUser, latch.WithCooldown(time.Nanosecond)))
	},
	"two Locks": func(l *lock.Locker) (outer, inner guardFunc) {
		return latch.Lock(l, "user", byUser), latch.Lock(l.With(), "user", byUser)
	},
	"Lock around another Lock": func(l *lock.Locker) (outer, inner guardFunc) {
		user := latch.Lock(l, "user", byUser)
		return nest(user, latch.Lock(l, "path", func(r *http.Request) (string, error) { return r.URL.Path, nil })), user
	},
	"Lock that waits": func(l *lock.Locker) (outer, inner guardFunc) {
		return both(latch.Lock(l.With(lock.WithWait(time.Hour)), "user", byUser))
	},
	"Idempotent": func(l *lock.Locker) (outer, inner guardFunc) { return both(once(l)) },
	"Idempotent around Dedupe": func(l *lock.Locker) (outer, inner guardFunc) {
		g := once(l)
		return nest(g, latch.Dedupe(l, byUser, time.Hour)), g
	},
	"two Idempotents": func(l *lock.Locker) (outer, inner guardFunc) { return once(l), once(l) },
	"Dedupe":          func(l *lock.Locker) (outer, inner guardFunc) { return both(latch.Dedupe(l, byUser, time.Hour)) },
}

func both(g guardFunc) (outer, inner guardFunc) { return g, g }

// A guard that is mounted around the router and on the route guards once: the inner one
// would refuse every request because of the outer one. It is logged once.
func TestAGuardThatIsMountedTwiceGuardsOnce(t *testing.T) {
	t.Parallel()
	for name, guards := range twice {
		parallel.Run(t, name, func(t *testing.T) {
			var out bytes.Buffer
			outer, inner := guards(newLocker(t, memstore.New(), logging(&out)))
			var e effects
			mux := chi.NewRouter()
			mux.Use(outer)
			mux.With(inner).Post("/orders", e.answer)
			for _, key := range []string{"a", "b", "c"} {
				r := keyed(key)
				r.URL.RawQuery = key // another request to Dedupe
				require.Equal(t, http.StatusCreated, serve(mux, r).Code)
				time.Sleep(time.Microsecond) // a cool-down of a nanosecond
			}
			e.require(t, 3)
			line := out.String()
			require.Contains(t, line, `"level":"ERROR"`)
			require.Contains(t, line, "this guard is mounted twice around one handler")
			require.Equal(t, 1, bytes.Count(out.Bytes(), []byte("\n")), line)
		})
	}
}

// The same without the store: the process refuses the key of an unprotected request to all others, and must not
// refuse it to the request itself. What has the context of a request that was served is refused.
func TestAGuardThatIsMountedTwiceFailsOpen(t *testing.T) {
	t.Parallel()
	guards := maps.Clone(twice)
	delete(guards, "Lock that waits") // until the lease of the request without protection is over
	guards["Lock around LockAll"] = func(l *lock.Locker) (outer, inner guardFunc) {
		return latch.Lock(l, "user", byUser), latch.LockAll(l, "user", func(r *http.Request) ([]string, error) {
			user, err := byUser(r)
			return []string{"other", user}, err
		})
	}
	for name, guards := range guards {
		inBubble(t, name, func(t *testing.T) {
			var down atomic.Bool
			down.Store(true)
			outer, inner := guards(newLocker(t, flakyStore(&down, lock.ErrNotApplied), lock.WithFailOpen(), lock.WithLogger(quiet)))
			var served context.Context
			for range 2 {
				w := serve(outer(inner(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
					served = context.WithoutCancel(r.Context())
					require.Equal(t, http.StatusConflict, serve(outer(mustNotRun(t)), keyed("k")).Code, "of another request")
					created(w, r)
				}))), keyed("k"))
				require.Equal(t, http.StatusCreated, w.Code)
			}
			down.Store(false)
			require.Equal(t, http.StatusCreated, serve(outer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				require.Equal(t, http.StatusConflict, serve(outer(mustNotRun(t)), keyed("k").WithContext(served)).Code)
				w.WriteHeader(http.StatusCreated)
			})), keyed("k")).Code)
		})
	}
}

// The twin: guards of other keys, or over another store, guard behind each other, and a guard that
// steps aside leaves the key with the outer guard.
func TestGuardsThatDifferGuardBehindEachOther(t *testing.T) {
	t.Parallel()
	l, other := newLocker(t, memstore.New()), newLocker(t, memstore.New())
	user := latch.Lock(l, "user", byUser)
	var e effects
	for name, tt := range map[string]struct {
		inner guardFunc
		of    *lock.Locker
		held  string
	}{
		"another name":  {latch.Lock(l, "order", byUser), l, lock.Key("order", "42")},
		"another store": {latch.Lock(other, "user", byUser), other, lock.Key("user", "42")},
	} {
		require.NoError(t, tt.of.Do(t.Context(), tt.held, func(context.Context) error {
			require.Equal(t, http.StatusConflict, serve(user(tt.inner(http.HandlerFunc(e.answer))), keyed("k")).Code, name)
			return nil
		}))
	}
	e.require(t, 0)
	guarded := user(user(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, locked := lock.FromContext(r.Context())
		require.True(t, locked)
		require.Equal(t, http.StatusConflict, serve(user(http.HandlerFunc(created)), keyed("k")).Code, "of another request")
		w.WriteHeader(http.StatusCreated)
	})))
	require.Equal(t, http.StatusCreated, serve(guarded, keyed("k")).Code)
}

// Where the outer guard no longer protects, because its lease is lost or it has returned,
// the inner one guards, for any context of its request.
func TestAGuardThatIsOverLetsNoGuardStepAside(t *testing.T) {
	t.Parallel()
	for name, guard := range map[string]func(*lock.Locker) guardFunc{
		"Lock":       func(l *lock.Locker) guardFunc { return latch.Lock(l, "user", byUser) },
		"Idempotent": func(l *lock.Locker) guardFunc { return once(l) },
	} {
		for _, how := range []string{"lost", "returned"} {
			inBubble(t, name+", "+how, func(t *testing.T) {
				store := memstore.New()
				g := guard(newLocker(t, store, lock.WithLogger(quiet)))
				left, release := make(chan context.Context, 1), make(chan struct{})
				first := g(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
					left <- context.WithoutCancel(r.Context())
					if how == "returned" {
						panic(http.ErrAbortHandler) // which leaves no answer to replay
					}
					operatorFrees(t, store)
					<-r.Context().Done()
					<-release
				}))
				var all sync.WaitGroup
				all.Go(func() {
					defer func() { _ = recover() }()
					serve(first, keyed("k"))
				})
				ctx := <-left
				time.Sleep(time.Minute) // the loss is known after this time
				synctest.Wait()

				// Another request has the key.
				held := make(chan struct{})
				all.Go(func() {
					serve(g(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { close(held); <-release })), keyed("k"))
				})
				<-held
				require.Equal(t, http.StatusConflict, serve(g(mustNotRun(t)), keyed("k").WithContext(ctx)).Code)
				close(release)
				all.Wait()
			})
		}
	}
}

// uncomparable is a store by value that == panics for.
type uncomparable struct {
	lock.Store
	tags []string
}

func TestAGuardOverAnUncomparableStore(t *testing.T) {
	t.Parallel()
	user := latch.Lock(newLocker(t, uncomparable{memstore.New(), []string{"a"}}, lock.WithLogger(quiet)), "user", byUser)
	require.Equal(t, http.StatusConflict, serve(user(user(mustNotRun(t))), keyed("k")).Code, "the two cannot be compared")
}
