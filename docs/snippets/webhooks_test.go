package snippets_test

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/httplatch/httplatch/keyfunc"
	"github.com/httplatch/httplatch/lock"
	latch "github.com/httplatch/httplatch/middleware"
)

func webhookRoutes(locker *lock.Locker) http.Handler {
	mux := http.NewServeMux()

	once := latch.Idempotent(
		locker.With(lock.WithKeep(7*24*time.Hour)),
		keyfunc.Global, keyfunc.Header("X-GitHub-Delivery"),
		latch.WithFinal(func(status int) bool { return status < 300 }),
		latch.WithFingerprint(keyfunc.Global),
	)

	mux.Handle("POST /hooks/github", verifySignature(once(http.HandlerFunc(takeDelivery))))
	return mux
}

func takeDelivery(w http.ResponseWriter, r *http.Request) {
	if err := enqueue(r.Context(), r.Body); err != nil {
		http.Error(w, "try again later", http.StatusServiceUnavailable)
		return
	}
	// From here on no failure makes it run again, not even that of this process.
	if err := lock.Commit(r.Context()); err != nil {
		slog.WarnContext(r.Context(), "a redelivery may be taken again", "error", err)
	}
	w.WriteHeader(http.StatusNoContent)
}

func verifySignature(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("X-Hub-Signature-256") != "right" {
			http.Error(w, "wrong signature", http.StatusForbidden)
			return
		}
		next.ServeHTTP(w, r)
	})
}

type queueKey struct{}

// enqueue puts a delivery into the queue of the context, if that has room.
func enqueue(ctx context.Context, body io.Reader) error {
	delivery, err := io.ReadAll(body)
	if err != nil {
		return err
	}
	select {
	case ctx.Value(queueKey{}).(chan string) <- string(delivery):
		return nil
	default:
		return errors.New("the queue is full")
	}
}

func TestWebhook(t *testing.T) {
	t.Parallel()
	h := webhookRoutes(newLocker(t, lock.NewMemory()))
	queue := make(chan string, 1)
	deliver := func(id, signature, body string) int {
		r := httptest.NewRequest("POST", "/hooks/github", strings.NewReader(body))
		r = r.WithContext(context.WithValue(r.Context(), queueKey{}, queue))
		r.Header.Set("X-GitHub-Delivery", id)
		r.Header.Set("X-Hub-Signature-256", signature)
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		return w.Code
	}
	require.Equal(t, 403, deliver("1", "wrong", "stolen"))
	require.Equal(t, 204, deliver("1", "right", "push"), "a delivery with a wrong signature does not use up the ID")
	require.Equal(t, 204, deliver("1", "right", "push, attempt 2"))
	require.Len(t, queue, 1)

	require.Equal(t, 503, deliver("2", "right", "push"))
	require.Equal(t, "push", <-queue)
	require.Equal(t, 204, deliver("2", "right", "push"), "a failure is not final")
	require.Len(t, queue, 1)
}
