package middleware_test

import (
	"context"
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/httplatch/httplatch/lock"
	"github.com/httplatch/httplatch/lock/memstore"
	latch "github.com/httplatch/httplatch/middleware"
)

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
