package middleware_test

import (
	"context"
	"fmt"
	"net/http"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/httplatch/httplatch/lock"
	"github.com/httplatch/httplatch/lock/memstore"
	latch "github.com/httplatch/httplatch/middleware"
)

// TestStreamEndsWithItsClient: once a stream has begun, only the client needs
// it. Before, the handler goes on even if the client leaves.
func TestStreamEndsWithItsClient(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		l := newLocker(t, memstore.New())
		ctx, leave := newCancel(t)
		returned := false
		h := once(l)(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			before := r.Context().Done()
			derived, cancel := context.WithTimeout(r.Context(), 24*time.Hour)
			defer cancel()
			require.NoError(t, http.NewResponseController(w).Flush())
			time.Sleep(time.Hour) // longer than any lease
			require.NoError(t, r.Context().Err())
			require.NoError(t, context.Cause(r.Context()))
			require.Equal(t, 1, lock.Attempt(r.Context()))
			leave()
			<-before
			<-derived.Done()
			require.ErrorIs(t, r.Context().Err(), context.Canceled)
			returned = true
		}))
		serve(h, keyed("k").WithContext(ctx))
		require.True(t, returned)
	})
}

// TestStreamOutlivesItsLease: a goroutine that first asks for the end of the context during the
// flush that begins the stream does not make it end with the lease again.
func TestStreamOutlivesItsLease(t *testing.T) {
	t.Parallel()
	l := newLocker(t, memstore.New())
	ended := 0
	h := once(l)(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		start, asked := make(chan struct{}), make(chan struct{})
		go func() {
			defer close(asked)
			<-start
			r.Context().Done()
		}()
		close(start)
		assert.NoError(t, http.NewResponseController(w).Flush())
		<-asked
		if r.Context().Err() != nil {
			ended++
		}
	}))
	for i := range 20_000 {
		serve(h, keyed(strconv.Itoa(i)))
	}
	require.Zero(t, ended, "streams ended with their leases")
}

// TestContextOfHandler: it is detached from the client, keeps its values, and
// ends when the handler has returned.
func TestContextOfHandler(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		type key struct{}
		l := newLocker(t, memstore.New())
		ctx, leave := newCancel(t)
		ctx = context.WithValue(ctx, key{}, "value")
		var after context.Context
		h := once(l)(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
			after = r.Context()
			leave()
			synctest.Wait()
			require.NoError(t, r.Context().Err())
			select {
			case <-r.Context().Done():
				t.Error("the client's leaving must not end it")
			default:
			}
			require.Equal(t, "value", r.Context().Value(key{}))
			_, has := r.Context().Deadline()
			require.False(t, has)
		}))
		serve(h, keyed("k").WithContext(ctx))
		<-after.Done()
		require.ErrorIs(t, after.Err(), context.Canceled)
	})
}

// TestContextIsPrintedBesideItsUse: mocks print their arguments, a context among
// them, while other goroutines of the handler wait for its end. Run with -race.
func TestContextIsPrintedBesideItsUse(t *testing.T) {
	t.Parallel()
	l := newLocker(t, memstore.New())
	for _, guard := range []func(http.Handler) http.Handler{once(l), latch.Lock(l, "user", byUser)} {
		h := guard(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
			asked := make(chan struct{})
			go func() {
				defer close(asked)
				r.Context().Done()
			}()
			require.Equal(t, "middleware.Context", fmt.Sprint(r.Context()))
			<-asked
			derived, cancel := context.WithCancel(r.Context())
			defer cancel()
			require.Equal(t, "middleware.Context.WithCancel", fmt.Sprint(derived))
		}))
		require.Equal(t, 200, serve(h, keyed("k")).Code)
	}
}
