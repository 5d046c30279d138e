package middleware_test

import (
	"context"
	"crypto/aes"
	"crypto/cipher"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

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
		require.Equal(t, 502, serve(guard(l)(proxyTo(t, w.url(), speaking)), post("42")).Code, name)
		again := serve(guard(l)(mustNotRun(t)), post("42"))
		require.Equal(t, 409, again.Code, name)
		require.Contains(t, again.Body.String(), "#held", name)
	}
}

// TestUnknownHoldOfSealedStores: a hold has a receipt that identifies it, which a sealed store
// encrypts.
func TestUnknownHoldOfSealedStores(t *testing.T) {
	t.Parallel()
	block, err := aes.NewCipher(make([]byte, 32))
	require.NoError(t, err)
	aead, err := cipher.NewGCM(block)
	require.NoError(t, err)
	for name, open := range bothStores {
		store := sealed.New(open(t), aead)
		w := startWire(t, whole, func(int) string { return "" })
		hold := latch.WithUnknownHold(time.Hour)
		guard := latch.Lock(newLocker(t, store, patient), "user", byUser, hold)
		require.Equal(t, 502, serve(guard(proxyTo(t, w.url(), speaking)), post("42")).Code, name)
		other := latch.Lock(newLocker(t, store, patient), "user", byUser, hold) // another process
		again := serve(other(mustNotRun(t)), post("42"))
		require.Equal(t, 409, again.Code, name)
		require.Contains(t, again.Body.String(), "#held", name)
		require.Equal(t, 201, serve(other(http.HandlerFunc(created)), post("43")).Code, name)
	}
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
