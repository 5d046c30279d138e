package main_test

import (
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/httplatch/httplatch/internal/testkit/redistest"
)

// A store that answers, and refuses to be written to, takes no orders: the desk
// is not ready, and says why in its log, until the store is mended.
func TestNotReadyWhileWritesAreRefused(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		spoil, mend []any
		logged      string // of the log line; READONLY may be over on another connection
	}{
		"user may not write": {[]any{"ACL", "SETUSER", "default", "-set"}, []any{"ACL", "SETUSER", "default", "+set"}, "NOPERM"},
		"out of memory":      {[]any{"CONFIG", "SET", "maxmemory", "1"}, []any{"CONFIG", "SET", "maxmemory", "0"}, "OOM"},
		"too few replicas": {
			[]any{"CONFIG", "SET", "min-replicas-to-write", "1"}, []any{"CONFIG", "SET", "min-replicas-to-write", "0"}, "NOREPLICAS",
		},
		"made a replica": {[]any{"REPLICAOF", "127.0.0.1", "1"}, []any{"REPLICAOF", "NO", "ONE"}, "READONLY"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server := redistest.Start(t)
			d := startDesk(t, patiently(server.URL())...)
			status := func() int { return d.do("GET", "/readyz", "").status }
			require.Eventually(t, func() bool { return status() == http.StatusOK }, 10*time.Second, 10*time.Millisecond)
			require.Empty(t, server.Keys(t), "nothing of the probe is left")

			server.Do(t, tt.spoil...)
			got := d.do("GET", "/readyz", "")
			requireProblem(t, http.StatusServiceUnavailable, got)
			require.Contains(t, got.body, "The store takes no locks: "+tt.logged+".")
			require.Equal(t, http.StatusServiceUnavailable, status())
			require.Equal(t, http.StatusOK, d.do("GET", "/healthz", "").status)

			server.Do(t, tt.mend...)
			require.Eventually(t, func() bool { return status() == http.StatusOK }, 10*time.Second, 10*time.Millisecond)
			require.Equal(t, http.StatusCreated, d.served("42").status)

			d.signal()
			require.NoError(t, <-d.ended)
			require.Contains(t, d.stderr.String(), "redisstore: "+tt.logged+": ")
			require.Contains(t, d.stderr.String(), "not ready")
		})
	}
}
