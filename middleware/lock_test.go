package middleware_test

import (
	"bytes"
	"context"
	"io"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/httplatch/httplatch/keyfunc"
	"github.com/httplatch/httplatch/lock"
	"github.com/httplatch/httplatch/lock/memstore"
	latch "github.com/httplatch/httplatch/middleware"
)

// hold takes the key of user 42 until the test ends.
func hold(tb testing.TB, l *lock.Locker) {
	tb.Helper()
	lease, err := l.Acquire(tb.Context(), lock.Key("user", "42"))
	require.NoError(tb, err)
	tb.Cleanup(func() { require.NoError(tb, lease.Release(context.Background())) })
}

func TestKeyFunctionOwnsItsRequest(t *testing.T) {
	t.Parallel()
	l := newLocker(t, memstore.New())
	fromBody := func(r *http.Request) (string, error) {
		b, err := io.ReadAll(r.Body)
		r.Body = io.NopCloser(bytes.NewReader(b))
		return string(b), err
	}
	for name, key := range map[string]keyfunc.Func{
		"guarded": fromBody,
		"skipped": func(r *http.Request) (string, error) {
			if _, err := fromBody(r); err != nil {
				return "", err
			}
			return "", keyfunc.ErrSkip
		},
	} {
		var got string
		r := post("42")
		body := r.Body
		serve(latch.Lock(l, "body", key)(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
			b, err := io.ReadAll(r.Body)
			require.NoError(t, err)
			got = string(b)
		})), r)
		require.Equal(t, `{"sku":"x"}`, got, name)
		require.Equal(t, body, r.Body, "%s: the caller's request is unchanged", name)
	}
}

func TestLostLeaseEndsTheRequest(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store := memstore.New()
		l := newLocker(t, store, lock.WithLease(30*time.Second))
		var cause error
		h := latch.Lock(l, "user", byUser)(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
			operatorFrees(t, store)
			<-r.Context().Done()
			cause = context.Cause(r.Context())
		}))
		began := time.Now()
		serve(h, post("42"))
		require.ErrorIs(t, cause, lock.ErrLost)
		require.LessOrEqual(t, time.Since(began), 30*time.Second)
		requireFree(t, l, lock.Key("user", "42"))
	})
}

// operatorFrees removes all entries of store.
func operatorFrees(t *testing.T, store lock.Store) {
	t.Helper()
	inspector, ok := store.(lock.Inspector)
	require.True(t, ok)
	n := 0
	for e, err := range inspector.List(t.Context()) {
		require.NoError(t, err)
		freed, err := inspector.Forget(t.Context(), e.Key, e.Token)
		require.NoError(t, err)
		require.True(t, freed)
		n++
	}
	require.NotZero(t, n)
}
