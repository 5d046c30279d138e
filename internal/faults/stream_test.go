package faults_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/httplatch/httplatch/internal/testkit/redistest"
	"github.com/httplatch/httplatch/keyfunc"
	"github.com/httplatch/httplatch/lock"
	latch "github.com/httplatch/httplatch/middleware"
)

// idempotent is the guard of both processes.
func idempotent(l *lock.Locker) func(http.Handler) http.Handler {
	return latch.Idempotent(l, keyfunc.Global, keyfunc.IdempotencyKey)
}

// childStreams serves an answer that begins and never ends, or does not begin.
func childStreams(store lock.Store, flush bool) error {
	l := lock.New(store, lock.WithLease(killLease), lock.WithBudget(killLease/2))
	server := httptest.NewServer(idempotent(l)(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		if flush {
			_, _ = io.WriteString(w, "the first part")
			_ = http.NewResponseController(w).Flush()
		}
		_, _ = fmt.Fprintln(os.Stdout, "running")
		select {} // until it is killed
	})))
	if _, err := fmt.Fprintln(os.Stdout, server.URL); err != nil {
		return err
	}
	select {}
}

// A process is killed in the middle of a request. Whatever the reply to a repeat,
// nothing runs again that the other process may have done.
func TestKilledInTheMiddleOfARequest(t *testing.T) {
	t.Parallel()
	for _, role := range []string{"stream", "silent"} {
		t.Run(role, func(t *testing.T) {
			t.Parallel()
			server := redistest.Start(t)
			cmd, out := startChild(t, role, server.URL())
			require.True(t, out.Scan())
			url := out.Text()
			client := &http.Client{Transport: new(http.Transport)}
			send := func(ctx context.Context, url string) (status int, body string, err error) {
				req, err := http.NewRequestWithContext(ctx, http.MethodPost, url, http.NoBody)
				require.NoError(t, err)
				req.Header.Set("Idempotency-Key", "k")
				res, err := client.Do(req)
				if err != nil {
					return 0, "", err
				}
				defer func() { _ = res.Body.Close() }()
				all, err := io.ReadAll(res.Body)
				return res.StatusCode, string(all), err
			}
			first := make(chan error, 1)
			go func() {
				_, _, err := send(context.Background(), url)
				first <- err
			}()
			require.True(t, out.Scan())
			err := cmd.Process.Kill()
			require.NoError(t, err)
			require.Error(t, <-first, "the client of the killed process has no whole answer")

			var runs atomic.Int64
			l := locker(t, open(t, server.URL()), lock.WithBudget(patient))
			desk := httptest.NewServer(idempotent(l)(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { runs.Add(1) })))
			t.Cleanup(desk.Close)
			var status int
			var body string
			until(t, func() bool { // its lease is over
				status, body, err = send(t.Context(), desk.URL)
				require.NoError(t, err)
				return !strings.Contains(body, "#in-progress")
			})
			client.CloseIdleConnections()
			require.Equal(t, http.StatusConflict, status)
			require.Contains(t, body, "#outcome-unknown")
			require.Zero(t, runs.Load())
		})
	}
}
