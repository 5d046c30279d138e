package middleware_test

import (
	"context"
	"errors"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"runtime/debug"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/httplatch/httplatch/internal/keytext"
	"github.com/httplatch/httplatch/internal/testkit/must"
	"github.com/httplatch/httplatch/internal/testkit/parallel"
	"github.com/httplatch/httplatch/keyfunc"
	"github.com/httplatch/httplatch/lock"
	"github.com/httplatch/httplatch/lock/memstore"
	latch "github.com/httplatch/httplatch/middleware"
)

var bySKU = keyfunc.Each("/items/*/sku")

func cart(skus ...string) *http.Request {
	items := make([]string, len(skus))
	for i, sku := range skus {
		items[i] = `{"sku":"` + sku + `"}`
	}
	r := httptest.NewRequest(http.MethodPost, "/carts", strings.NewReader(`{"items":[`+strings.Join(items, ",")+`]}`))
	r.Header.Set("X-User-ID", "42")
	return r
}

// The handler runs while all keys are held, and none of them is held after it.
func TestLockAllHoldsAllKeys(t *testing.T) {
	t.Parallel()
	l := newLocker(t, memstore.New())
	h := latch.LockAll(l, "item", bySKU)(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		set, ok := lock.SetFromContext(r.Context())
		require.True(t, ok)
		require.Equal(t, []string{"item=a", "item=b"}, set.Keys())
		for _, key := range set.Keys() {
			require.ErrorIs(t, l.Do(r.Context(), key, nil), lock.ErrHeld)
		}
		other := latch.LockAll(l, "item", bySKU)(mustNotRun(t))
		requireProblem(t, wantProblem{status: 409, kind: "held", retryAfter: "1"}, serve(other, cart("c", "b")))
		requireFree(t, l, "item=c")
		created(w, r)
	}))
	require.Equal(t, http.StatusCreated, serve(h, cart("b", "a", "b")).Code)
	requireFree(t, l, "item=a")
	requireFree(t, l, "item=b")
}

func TestLockAllSpec(t *testing.T) {
	t.Parallel()
	values := func(keys []string, err error) keyfunc.Set {
		return func(*http.Request) ([]string, error) { return keys, err }
	}
	for name, tt := range map[string]struct {
		keys keyfunc.Set
		opts []latch.LockOption
		want wantProblem
	}{
		"one is held":               {values([]string{"a", "held"}, nil), nil, wantProblem{status: 409, kind: "held", retryAfter: "1"}},
		"one is held, 423":          {values([]string{"a", "held"}, nil), []latch.LockOption{latch.WithContentionStatus(423)}, wantProblem{status: 423, kind: "held", retryAfter: "1"}},
		"one cools down":            {values([]string{"a", "cools"}, nil), nil, wantProblem{status: 429, kind: "cooling-down", retryAfter: "5"}},
		"no keys":                   {values(nil, nil), nil, wantProblem{status: 400, kind: "key-missing"}},
		"an empty key":              {values([]string{"a", ""}, nil), nil, wantProblem{status: 400, kind: "key-missing"}},
		"no items in the body":      {bySKU, nil, wantProblem{status: 400, kind: "key-missing"}},
		"a long key":                {values([]string{"a", strings.Repeat("k", keytext.MaxBytes)}, nil), nil, wantProblem{status: 400, kind: "key-invalid"}},
		"an error of the function":  {values(nil, context.Canceled), nil, wantProblem{status: 500, kind: "key-failed"}},
		"the function says 401":     {values(nil, &keyfunc.Error{Status: 401}), nil, wantProblem{status: 401, kind: "unauthenticated"}},
		"a body over the limit":     {values([]string{"a"}, nil), []latch.LockOption{latch.WithBodyFirst(3)}, wantProblem{status: 413, kind: "body-too-large"}},
		"keys in too large a body":  {bySKU, []latch.LockOption{latch.WithBodyFirst(3)}, wantProblem{status: 413, kind: "body-too-large"}},
		"store out, other key held": {values([]string{"held", "a"}, nil), []latch.LockOption{latch.WithFailOpen()}, wantProblem{status: 409, kind: "held", retryAfter: "1"}},
	} {
		inBubble(t, name, func(t *testing.T) {
			l := newLocker(t, memstore.New(), lock.WithLogger(quiet))
			held := must.Get(l.Acquire(t.Context(), "item=held"))(t)
			cools := must.Get(l.Acquire(t.Context(), "item=cools"))(t)
			require.NoError(t, cools.Settle(t.Context(), nil, 5*time.Second))
			requireProblem(t, tt.want, serve(latch.LockAll(l, "item", tt.keys, tt.opts...)(mustNotRun(t)), cart()))
			requireFree(t, l, "item=a")
			require.NoError(t, held.Release(t.Context()))
		})
	}
}

// Keys that a guard further out has are not claimed again.
func TestLockAllInsideOtherGuards(t *testing.T) {
	t.Parallel()
	l := newLocker(t, memstore.New(), lock.WithLogger(quiet))
	first := latch.Lock(l, "item", keyfunc.JSON("/items/0/sku"))
	set := latch.LockAll(l, "item", bySKU)
	runs := 0
	h := http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		runs++
		for _, key := range []string{"item=a", "item=b"} {
			require.ErrorIs(t, l.Do(r.Context(), key, nil), lock.ErrHeld)
		}
	})
	for name, guarded := range map[string]http.Handler{
		"Lock around LockAll": first(set(h)), "LockAll around Lock": set(first(h)), "LockAll twice": set(set(h)),
	} {
		runs = 0
		require.Equal(t, http.StatusOK, serve(guarded, cart("a", "b")).Code, name)
		require.Equal(t, 1, runs, name)
		requireFree(t, l, "item=a")
		requireFree(t, l, "item=b")
	}
}

// Without the store the handler runs, and knows that nothing protects it.
func TestLockAllFailsOpen(t *testing.T) {
	t.Parallel()
	l := newLocker(t, unreachable(), lock.WithLogger(quiet))
	runs := 0
	h := latch.LockAll(l, "item", bySKU, latch.WithFailOpen())(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		runs++
		_, ok := lock.SetFromContext(r.Context())
		require.False(t, ok)
	}))
	require.Equal(t, http.StatusOK, serve(h, cart("a", "b")).Code)
	require.Equal(t, 1, runs)
	requireProblem(t, wantProblem{status: 503, kind: "unavailable", retryAfter: "1"}, serve(latch.LockAll(l, "item", bySKU)(mustNotRun(t)), cart("a", "b")))
}

// Three requests of a user run at the same time, in two processes, and no fourth.
func TestWithPermits(t *testing.T) {
	parallel.Bubble(t, func(t *testing.T) {
		store := memstore.New()
		finish := make(chan struct{})
		handler := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			lease, ok := lock.FromContext(r.Context())
			require.True(t, ok)
			require.Contains(t, lock.Slots("export", 3, r.Header.Get("X-User-ID")), lease.Key())
			<-finish
			created(w, r)
		})
		process := func() http.Handler {
			return latch.Lock(newLocker(t, store), "export", byUser, latch.WithPermits(3))(handler)
		}
		processes := []http.Handler{process(), process()}
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

// A permit is not the key: a lock around permits of the same name holds no slot of them.
func TestPermitsInsideOtherGuards(t *testing.T) {
	t.Parallel()
	l := newLocker(t, memstore.New(), lock.WithLogger(quiet))
	one, three := latch.Lock(l, "export", byUser), latch.Lock(l, "export", byUser, latch.WithPermits(3))
	taken := func(want int) http.Handler {
		return http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
			slots := 0
			for _, key := range append(lock.Slots("export", 3, "42"), lock.Key("export", "42")) {
				if must.Get(l.Store().Get(r.Context(), key))(t).State == lock.Held {
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

// TestCooldown has the answers that no row of docs/evidence/semantics.md has.
func TestCooldown(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		handler http.HandlerFunc
		cools   bool
	}{
		"only a body":                 {acts(write("ok")), true},
		"399":                         {acts(status(399)), true},
		"103, then a body":            {acts(status(103), write("")), true},
		"201, then a superfluous 500": {acts(status(201), status(500)), true},
		"500, then a superfluous 201": {acts(status(500), status(201)), false},
		"copied, then a 500":          {acts(func(w http.ResponseWriter) { _, _ = io.Copy(w, strings.NewReader("ok")) }, status(500)), true},
		"flushed, then a 500":         {acts(flush, status(500)), true},
	} {
		inBubble(t, name, func(t *testing.T) {
			guard := latch.Lock(newLocker(t, memstore.New()), "user", byUser, latch.WithCooldown(3*time.Second))
			serve(guard(tt.handler), post("42"))
			next := guard(http.HandlerFunc(created))
			if !tt.cools {
				require.Equal(t, http.StatusCreated, serve(next, post("42")).Code, "the key is free at once")
				return
			}
			time.Sleep(500 * time.Millisecond)
			requireProblem(t, wantProblem{status: 429, kind: "cooling-down", retryAfter: "3"}, serve(next, post("42")))
			time.Sleep(2501 * time.Millisecond)
			require.Equal(t, http.StatusCreated, serve(next, post("42")).Code)
		})
	}
}

func TestCooldownSurvivesRequest(t *testing.T) {
	parallel.Bubble(t, func(t *testing.T) {
		l := newLocker(t, &stubStore{Store: memstore.New()})
		guard := latch.Lock(l, "user", byUser, latch.WithCooldown(3*time.Second))
		ctx, cancel := context.WithCancel(t.Context())
		serve(guard(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			cancel()
			w.WriteHeader(http.StatusCreated)
		})), post("42").WithContext(ctx))
		require.Equal(t, http.StatusTooManyRequests, serve(guard(mustNotRun(t)), post("42")).Code)
	})
}

// startServer serves h over TCP, with the panics of its handlers unlogged.
func startServer(t *testing.T, h http.Handler) *httptest.Server {
	t.Helper()
	return startServerOf(t, h, false)
}

func startServerOf(t *testing.T, h http.Handler, http2 bool) *httptest.Server {
	t.Helper()
	server := httptest.NewUnstartedServer(h)
	server.Config.ErrorLog = log.New(io.Discard, "", 0)
	if http2 {
		server.EnableHTTP2 = true
		server.StartTLS()
	} else {
		server.Start()
	}
	// On one connection a request is not read before the handler of the last one
	// has returned, which would hide a late release.
	transport, ok := server.Client().Transport.(*http.Transport)
	require.True(t, ok)
	transport.DisableKeepAlives = true
	t.Cleanup(func() {
		server.Client().CloseIdleConnections()
		server.Close()
	})
	return server
}

func TestPanicIsUnchanged(t *testing.T) {
	t.Parallel()
	l := newLocker(t, memstore.New())
	for name, guard := range map[string]func(http.Handler) http.Handler{
		"lock":            latch.Lock(l, "plain", byUser),
		"lock, cool-down": latch.Lock(l, "cool-down", byUser, latch.WithCooldown(time.Hour)),
		"idempotent":      once(l),
	} {
		parallel.Run(t, name, func(t *testing.T) {
			value := errors.New("boom")
			h := guard(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { panicsFarDown(value) }))
			for range 2 { // the second runs, since the first has freed the key
				func() {
					defer func() {
						require.Same(t, value, recover())
						require.Contains(t, string(debug.Stack()), "panicsFarDown", "the stack is the handler's")
					}()
					serve(h, keyed("k"))
				}()
			}
		})
	}
}

func panicsFarDown(value error) { panic(value) }

func TestClientGoneBeforeTheClaim(t *testing.T) {
	t.Parallel()
	for name, opts := range map[string][]latch.LockOption{"plain": nil, "fail open": {latch.WithFailOpen()}} {
		l := newLocker(t, &stubStore{Store: memstore.New()})
		w := serve(latch.Lock(l, "user", byUser, opts...)(mustNotRun(t)), post("42").WithContext(canceled(t)))
		require.Equal(t, http.StatusServiceUnavailable, w.Code, name)
	}
}

// TestReleasedBeforeAnswer submits again as soon as an answer was read. A
// release that is not over at that time shows as a 409.
func TestReleasedBeforeAnswer(t *testing.T) {
	t.Parallel()
	l := newLocker(t, memstore.New())
	server := startServer(t, latch.Lock(l, "user", byUser)(acts(status(http.StatusCreated), write(strings.Repeat("x", 1000)))))
	for i := range 1000 {
		require.Equal(t, http.StatusCreated, exchanged(t, server, clientRequest(t, server.URL, "k")).status, "submission %d", i)
	}
}

// TestReleasedTooLateIsSeen is the twin of TestReleasedBeforeAnswer: the same
// check notices a guard that releases after the answer was sent.
func TestReleasedTooLateIsSeen(t *testing.T) {
	t.Parallel()
	l := newLocker(t, memstore.New())
	again := make(chan struct{})
	server := startServer(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		lease, err := l.Acquire(r.Context(), lock.Key("user", "42"))
		if err != nil {
			w.WriteHeader(http.StatusConflict)
			return
		}
		defer func() { _ = lease.Release(r.Context()) }()
		w.Header().Set("Content-Length", "0")
		w.WriteHeader(http.StatusCreated)
		require.NoError(t, http.NewResponseController(w).Flush())
		<-again
	}))
	require.Equal(t, http.StatusCreated, exchanged(t, server, clientRequest(t, server.URL, "k")).status)
	require.Equal(t, http.StatusConflict, exchanged(t, server, clientRequest(t, server.URL, "k")).status)
	close(again)
}
