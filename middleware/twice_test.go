package middleware_test

import (
	"bytes"
	"context"
	"log/slog"
	"maps"
	"net/http"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-chi/chi/v5"
	"github.com/stretchr/testify/require"

	"github.com/httplatch/httplatch/lock"
	"github.com/httplatch/httplatch/lock/memstore"
	latch "github.com/httplatch/httplatch/middleware"
)

// twice are guards that meet their own key when they are mounted twice: one value at
// two places, and two values of the same settings.
var twice = map[string]func(l *lock.Locker) (outer, inner func(http.Handler) http.Handler){
	"Lock": func(l *lock.Locker) (outer, inner func(http.Handler) http.Handler) {
		g := latch.Lock(l, "user", byUser)
		return g, g
	},
	"Lock with a cool-down": func(l *lock.Locker) (outer, inner func(http.Handler) http.Handler) {
		g := latch.Lock(l, "user", byUser, latch.WithCooldown(time.Nanosecond))
		return g, g
	},
	"two Locks": func(l *lock.Locker) (outer, inner func(http.Handler) http.Handler) {
		return latch.Lock(l, "user", byUser), latch.Lock(l.With(), "user", byUser)
	},
	"Lock around another Lock": func(l *lock.Locker) (outer, inner func(http.Handler) http.Handler) {
		user, path := latch.Lock(l, "user", byUser), latch.Lock(l, "path", func(r *http.Request) (string, error) { return r.URL.Path, nil })
		return func(next http.Handler) http.Handler { return user(path(next)) }, user
	},
	"Lock that waits": func(l *lock.Locker) (outer, inner func(http.Handler) http.Handler) {
		g := latch.Lock(l.With(lock.WithWait(time.Hour)), "user", byUser)
		return g, g
	},
	"Idempotent": func(l *lock.Locker) (outer, inner func(http.Handler) http.Handler) {
		g := once(l)
		return g, g
	},
	"Idempotent around Dedupe": func(l *lock.Locker) (outer, inner func(http.Handler) http.Handler) {
		g, d := once(l), latch.Dedupe(l, byUser, time.Hour)
		return func(next http.Handler) http.Handler { return g(d(next)) }, g
	},
	"two Idempotents": func(l *lock.Locker) (outer, inner func(http.Handler) http.Handler) {
		return once(l), once(l)
	},
	"Dedupe": func(l *lock.Locker) (outer, inner func(http.Handler) http.Handler) {
		g := latch.Dedupe(l, byUser, time.Hour)
		return g, g
	},
}

// A guard that is mounted around the router and on the route guards once: the inner one
// would refuse every request because of the outer one. It is logged once.
func TestAGuardThatIsMountedTwiceGuardsOnce(t *testing.T) {
	t.Parallel()
	for name, guards := range twice {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var out bytes.Buffer
			outer, inner := guards(newLocker(t, memstore.New(), lock.WithLogger(slog.New(slog.NewJSONHandler(&out, nil)))))
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
	guards["Lock around LockAll"] = func(l *lock.Locker) (outer, inner func(http.Handler) http.Handler) {
		return latch.Lock(l, "user", byUser), latch.LockAll(l, "user", func(r *http.Request) ([]string, error) {
			user, err := byUser(r)
			return []string{"other", user}, err
		})
	}
	for name, guards := range guards {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
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
		})
	}
}

// The twin: guards of other keys, or over another store, guard behind each other, and a guard that
// steps aside leaves the key with the outer guard.
func TestGuardsThatDifferGuardBehindEachOther(t *testing.T) {
	t.Parallel()
	l := newLocker(t, memstore.New())
	other := newLocker(t, memstore.New())
	user := latch.Lock(l, "user", byUser)
	var e effects
	for name, inner := range map[string]func(http.Handler) http.Handler{
		"another name":  latch.Lock(l, "order", byUser),
		"another store": latch.Lock(other, "user", byUser),
	} {
		t.Run(name, func(t *testing.T) {
			held := lock.Key("order", "42")
			of := l
			if name == "another store" {
				held, of = lock.Key("user", "42"), other
			}
			lease, err := of.Acquire(t.Context(), held)
			require.NoError(t, err)
			require.Equal(t, http.StatusConflict, serve(user(inner(http.HandlerFunc(e.answer))), keyed("k")).Code)
			require.NoError(t, lease.Release(t.Context()))
		})
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
	for name, guard := range map[string]func(*lock.Locker) func(http.Handler) http.Handler{
		"Lock":       func(l *lock.Locker) func(http.Handler) http.Handler { return latch.Lock(l, "user", byUser) },
		"Idempotent": func(l *lock.Locker) func(http.Handler) http.Handler { return once(l) },
	} {
		for _, how := range []string{"lost", "returned"} {
			t.Run(name+", "+how, func(t *testing.T) {
				t.Parallel()
				synctest.Test(t, func(t *testing.T) {
					store := memstore.New()
					l := newLocker(t, store, lock.WithLogger(quiet))
					g := guard(l)
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
	l := newLocker(t, uncomparable{memstore.New(), []string{"a"}}, lock.WithLogger(quiet))
	user := latch.Lock(l, "user", byUser)
	require.Equal(t, http.StatusConflict, serve(user(user(mustNotRun(t))), keyed("k")).Code, "it cannot be told")
}
