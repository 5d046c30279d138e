package middleware_test

import (
	"bytes"
	"context"
	"encoding/json"
	"log/slog"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/httplatch/httplatch/keyfunc"
	"github.com/httplatch/httplatch/lock"
	"github.com/httplatch/httplatch/lock/memstore"
	latch "github.com/httplatch/httplatch/middleware"
)

// Events of each kind, and hints in the log, have the guard's name, up to the longest one.
func TestGuardNames(t *testing.T) {
	t.Parallel()
	longest := strings.Repeat("ä", 32)
	for name, tt := range map[string]struct {
		opts []latch.IdempotentOption
		want string
	}{
		"named":           {[]latch.IdempotentOption{latch.WithName("orders")}, "orders"},
		"the last counts": {[]latch.IdempotentOption{latch.WithName("orders"), latch.WithName("payments")}, "payments"},
		"64 bytes":        {[]latch.IdempotentOption{latch.WithName(longest)}, longest},
		"not named":       {nil, "idempotent"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var events []lock.Event
			var log bytes.Buffer
			l := newLocker(t, memstore.New(), lock.WithLogger(slog.New(slog.NewJSONHandler(&log, nil))),
				lock.WithObserver(func(_ context.Context, e lock.Event) { events = append(events, e) }))
			guard := func(key keyfunc.Func) http.Handler {
				return latch.Idempotent(l, byUser, key, tt.opts...)(http.HandlerFunc(created))
			}
			serve(guard(keyfunc.IdempotencyKey), keyed("k"))
			serve(guard(keyfunc.IdempotencyKey), keyed("k"))
			serve(guard(keyfunc.IdempotencyKey), keyed("")) // with a hint in the log
			serve(guard(keyfunc.Optional(keyfunc.IdempotencyKey)), keyed(""))

			seen := make(map[lock.EventKind]bool)
			for _, e := range events {
				seen[e.Kind] = true
				require.Equal(t, tt.want, e.Name, e.Kind)
			}
			require.Equal(t, map[lock.EventKind]bool{
				lock.EventClaimed: true, lock.EventSettled: true, lock.EventReplayed: true, lock.EventRejected: true, lock.EventSkipped: true,
			}, seen)
			var line struct{ Name string }
			require.NoError(t, json.Unmarshal(log.Bytes(), &line), log.String())
			require.Equal(t, tt.want, line.Name)
		})
	}
}

// The label is made of the guard's own request: a function that reads the body there leaves it to
// the handler.
func TestLabelsOfBodies(t *testing.T) {
	t.Parallel()
	memory := memstore.New()
	l := newLocker(t, memory)
	sku := keyfunc.JSON("/sku")
	label := latch.WithLabel(func(r *http.Request) string {
		text, err := sku(r)
		if err != nil {
			return ""
		}
		return "sku " + text
	})
	var got bytes.Buffer
	h := latch.Idempotent(l, byUser, keyfunc.IdempotencyKey, label)(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, err := got.ReadFrom(r.Body)
		require.NoError(t, err)
		w.WriteHeader(http.StatusCreated)
	}))
	require.Equal(t, http.StatusCreated, serve(h, keyed("k")).Code)
	require.JSONEq(t, `{"sku":"x"}`, got.String())
	for e, err := range memory.List(t.Context()) {
		require.NoError(t, err)
		require.True(t, strings.HasSuffix(e.Owner, "\x1fidempotent\x1fPOST\x1f/orders\x1fsku x"), "%q", e.Owner)
	}
}
