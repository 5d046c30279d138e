package middleware_test

import (
	"context"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/httplatch/httplatch/lock"
	"github.com/httplatch/httplatch/lock/memstore"
	"github.com/httplatch/httplatch/lock/sealed"
	latch "github.com/httplatch/httplatch/middleware"
)

// TestUnknownHoldAfterTheClientHasGone: its going ends the call, and not the work.
func TestUnknownHoldAfterTheClientHasGone(t *testing.T) {
	t.Parallel()
	for _, opts := range [][]latch.LockOption{{latch.WithUnknownHold(time.Hour)}, nil} {
		arrived := make(chan struct{})
		server := startServer(t, http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
			arrived <- struct{}{}
			<-r.Context().Done()
		}))
		l := newLocker(t, memstore.New())
		send := speaking(server.Client().Transport)
		call := latch.Lock(l, "user", byUser, opts...)(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			out, err := http.NewRequestWithContext(r.Context(), http.MethodPost, server.URL, http.NoBody)
			require.NoError(t, err)
			require.Error(t, sendBy(t, send, out))
			w.WriteHeader(http.StatusBadGateway)
		}))
		ctx, hangUp := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() {
			defer close(done)
			call.ServeHTTP(httptest.NewRecorder(), post("42").WithContext(ctx))
		}()
		<-arrived
		hangUp()
		<-done
		again := serve(latch.Lock(l, "user", byUser, opts...)(http.HandlerFunc(created)), post("42"))
		require.Equal(t, map[bool]int{true: 409, false: 201}[len(opts) > 0], again.Code)
	}
}

// TestUnknownHoldOfSeveralKeys: each key of a set stays taken, and the permit of a lock.
func TestUnknownHoldOfSeveralKeys(t *testing.T) {
	t.Parallel()
	hold := latch.WithUnknownHold(time.Hour)
	for name, guard := range map[string]func(l *lock.Locker) func(http.Handler) http.Handler{
		"LockAll": func(l *lock.Locker) func(http.Handler) http.Handler {
			return latch.LockAll(l, "user", func(*http.Request) ([]string, error) { return []string{"42", "43"}, nil }, hold)
		},
		"permits": func(l *lock.Locker) func(http.Handler) http.Handler {
			return latch.Lock(l, "user", byUser, hold, latch.WithPermits(1))
		},
	} {
		w := startWire(t, whole, func(int) string { return "" })
		l := newLocker(t, memstore.New())
		require.Equal(t, 502, serve(guard(l)(proxyTo(t, w.url, speaking)), post("42")).Code, name)
		again := serve(guard(l)(mustNotRun(t)), post("42"))
		require.Equal(t, 409, again.Code, name)
		require.Contains(t, again.Body.String(), "#held", name)
	}
}

// TestUnknownHoldOfSealedStores: a hold has a receipt that identifies it, which a sealed store encrypts.
func TestUnknownHoldOfSealedStores(t *testing.T) {
	t.Parallel()
	store := sealed.New(redisStore(t), newSeal(t, strings.Repeat("0", 32)))
	w := startWire(t, whole, func(int) string { return "" })
	hold := latch.WithUnknownHold(time.Hour)
	guard := latch.Lock(newLocker(t, store, patient), "user", byUser, hold)
	require.Equal(t, 502, serve(guard(proxyTo(t, w.url, speaking)), post("42")).Code)
	other := latch.Lock(newLocker(t, store, patient), "user", byUser, hold) // another process
	again := serve(other(mustNotRun(t)), post("42"))
	require.Equal(t, 409, again.Code)
	require.Contains(t, again.Body.String(), "#held")
	require.Equal(t, 201, serve(other(http.HandlerFunc(created)), post("43")).Code)
}

// TestUnknownElsewhere: there is nothing to note it in.
func TestUnknownElsewhere(t *testing.T) {
	t.Parallel()
	require.ErrorContains(t, latch.Unknown(t.Context()), "behind a guard")
	l := newLocker(t, memstore.New())
	for name, guard := range map[string]func(http.Handler) http.Handler{"Idempotent": once(l), "Lock": latch.Lock(l, "user", byUser)} {
		var behind context.Context
		serve(guard(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			behind = context.WithoutCancel(r.Context())
			w.WriteHeader(http.StatusInternalServerError)
		})), keyed("k"))
		require.ErrorIs(t, latch.Unknown(behind), lock.ErrLost, name)
	}
}

// TestCrash: a process dies in its handler, and an abandoned request may run again. It does not if
// the handler has done something that is noted at the store first.
func TestCrash(t *testing.T) {
	t.Parallel()
	calls := func(through via) func(http.ResponseWriter, *http.Request, func()) error {
		return func(_ http.ResponseWriter, r *http.Request, dies func()) error {
			client := through(roundTrip(func(r *http.Request) (*http.Response, error) { dies(); return lost(r) }))
			_ = sendBy(t, client, ownCall(r.Context()))
			return nil
		}
	}
	noted := wantProblem{status: 409, kind: "in-progress", retryAfter: "1"} // nothing says that it has ended
	for name, tt := range map[string]struct {
		runs  func(w http.ResponseWriter, r *http.Request, dies func()) error
		again wantProblem // the refusal of the repeat; without a status it runs
	}{
		"nothing": {func(_ http.ResponseWriter, _ *http.Request, dies func()) error { dies(); return nil }, wantProblem{}},
		"a stream has begun": {func(w http.ResponseWriter, _ *http.Request, dies func()) error {
			defer dies()
			return http.NewResponseController(w).Flush()
		}, noted},
		"Commit": {func(_ http.ResponseWriter, r *http.Request, dies func()) error {
			defer dies()
			return lock.Commit(r.Context())
		}, noted},
		"Unknown": {func(_ http.ResponseWriter, r *http.Request, dies func()) error {
			defer dies()
			return latch.Unknown(r.Context())
		}, noted},
		"a call through Upstream": {calls(upstream), noted},
		"a plain call":            {calls(plain), wantProblem{}},
	} {
		inBubble(t, name, func(t *testing.T) {
			memory := memstore.New()
			dying := &mortalStore{Store: memory}
			opts := []lock.Option{lock.WithRerunAbandoned(), lock.WithLogger(quiet)}
			dead, alive := lock.New(dying, opts...), lock.New(memory, opts...)
			gone, restart := make(chan struct{}), make(chan struct{})
			go func() {
				defer close(gone)
				serve(once(dead)(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
					assert.NoError(t, tt.runs(w, r, func() { dying.Dead.Store(true); <-restart }))
				})), keyed("k"))
			}()
			time.Sleep(time.Minute)
			again := serve(once(alive)(http.HandlerFunc(created)), keyed("k"))
			if tt.again.status == 0 {
				require.Equal(t, http.StatusCreated, again.Code)
			} else {
				requireProblem(t, tt.again, again)
			}
			close(restart)
			<-gone
			end(dead)
			end(alive)
			time.Sleep(48 * time.Hour) // the clean-up of the dead has given up
		})
	}
}
