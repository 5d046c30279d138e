package middleware_test

import (
	"context"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/httplatch/httplatch/internal/keytext"
	"github.com/httplatch/httplatch/lock"
	"github.com/httplatch/httplatch/lock/memstore"
	latch "github.com/httplatch/httplatch/middleware"
)

// Three requests of a user run at the same time, in two processes, and no fourth.
func TestWithPermits(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store := memstore.New()
		finish := make(chan struct{})
		handler := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			lease, ok := lock.FromContext(r.Context())
			require.True(t, ok)
			require.Contains(t, lock.Slots("export", 3, r.Header.Get("X-User-ID")), lease.Key())
			<-finish
			created(w, r)
		})
		processes := []http.Handler{
			latch.Lock(newLocker(t, store), "export", byUser, latch.WithPermits(3))(handler),
			latch.Lock(newLocker(t, store), "export", byUser, latch.WithPermits(3))(handler),
		}
		var requests sync.WaitGroup
		for i := range 3 {
			requests.Go(func() { require.Equal(t, http.StatusCreated, serve(processes[i%2], post("42")).Code) })
		}
		synctest.Wait()
		for _, h := range processes {
			requireProblem(t, wantProblem{status: 409, kind: "held", retryAfter: "1"}, serve(h, post("42")))
		}
		requests.Go(func() { require.Equal(t, http.StatusCreated, serve(processes[0], post("43")).Code) }) // another user
		synctest.Wait()
		close(finish)
		requests.Wait()
		require.Equal(t, http.StatusCreated, serve(processes[1], post("42")).Code)
	})
}

// A worker that takes the slots by name shares them with the route.
func TestPermitsOfARouteAndAWorker(t *testing.T) {
	t.Parallel()
	l := newLocker(t, memstore.New())
	h := latch.Lock(l, "export", byUser, latch.WithPermits(1), latch.WithContentionStatus(429))(mustNotRun(t))
	require.NoError(t, l.DoAny(t.Context(), lock.Slots("export", 1, "42"), func(context.Context, string) error {
		requireProblem(t, wantProblem{status: 429, kind: "held", retryAfter: "1"}, serve(h, post("42")))
		return nil
	}))
}

// With a cool-down, n requests run in each d.
func TestPermitsCoolDown(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		l := newLocker(t, memstore.New())
		h := latch.Lock(l, "export", byUser, latch.WithPermits(2), latch.WithCooldown(10*time.Second))(http.HandlerFunc(created))
		for range 2 {
			require.Equal(t, http.StatusCreated, serve(h, post("42")).Code)
			time.Sleep(time.Second)
		}
		requireProblem(t, wantProblem{status: 429, kind: "cooling-down", retryAfter: "8"}, serve(h, post("42")))
		time.Sleep(8 * time.Second)
		require.Equal(t, http.StatusCreated, serve(h, post("42")).Code)
	})
}

// A permit is not the key: a lock around permits of the same name holds no slot of them.
func TestPermitsInsideOtherGuards(t *testing.T) {
	t.Parallel()
	l := newLocker(t, memstore.New(), lock.WithLogger(quiet))
	one, three := latch.Lock(l, "export", byUser), latch.Lock(l, "export", byUser, latch.WithPermits(3))
	taken := func(want int) http.Handler {
		return http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
			slots := 0
			for _, key := range append(lock.Slots("export", 3, "42"), lock.Key("export", "42")) {
				e, err := l.Store().Get(r.Context(), key)
				require.NoError(t, err)
				if e.State == lock.Held {
					slots++
				}
			}
			require.Equal(t, want, slots)
		})
	}
	for name, h := range map[string]http.Handler{
		"inside the lock": one(three(taken(2))), "around the lock": three(one(taken(2))), "twice": three(three(taken(1))),
	} {
		require.Equal(t, http.StatusOK, serve(h, post("42")).Code, name)
	}
}

// A key has room for the number of its slot.
func TestLongKeyOfAPermit(t *testing.T) {
	t.Parallel()
	l := newLocker(t, memstore.New())
	user := strings.Repeat("k", keytext.MaxBytes-len("export=")-keytext.SlotBytes)
	by := func(value string) http.Handler {
		return latch.Lock(l, "export", func(*http.Request) (string, error) { return value, nil }, latch.WithPermits(64))(http.HandlerFunc(created))
	}
	require.Equal(t, http.StatusCreated, serve(by(user), post("42")).Code)
	requireProblem(t, wantProblem{status: 400, kind: "key-invalid"}, serve(by(user+"k"), post("42")))
}
