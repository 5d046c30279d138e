package redisstore_test

import (
	"log/slog"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/httplatch/httplatch/internal/keytext"
	"github.com/httplatch/httplatch/internal/testkit/redistest"
	"github.com/httplatch/httplatch/lock/redisstore/internal/failure"
)

// A Redis without persistence forgets receipts when it restarts, and a repeat then runs again. The
// store says so once, as soon as it has left a receipt, and never about locks alone, or if the user may
// not ask.
func TestWarnsOfReceiptsThatARestartLoses(t *testing.T) { //nolint:paralleltest // it reads the log of the process
	none := []string{"--save", "", "--appendonly", "no"}
	for name, tt := range map[string]struct {
		args     []string
		key      string
		protocol int
		acl      bool
		warnings int
	}{
		"nothing is written":      {none, keytext.Record("order"), 3, false, 1},
		"nothing, by RESP2":       {none, keytext.Record("order"), 2, false, 1},
		"snapshots":               {[]string{"--save", "3600 1", "--appendonly", "no"}, keytext.Record("order"), 3, false, 0},
		"an append-only file":     {[]string{"--save", "", "--appendonly", "yes"}, keytext.Record("order"), 3, false, 0},
		"only locks":              {none, "user=42", 3, false, 0},
		"CONFIG is not permitted": {none, keytext.Record("order"), 3, true, 0},
	} {
		t.Run(name, func(t *testing.T) {
			var log journal
			before := slog.Default()
			slog.SetDefault(slog.New(slog.NewTextHandler(&log, nil)))
			defer slog.SetDefault(before)
			srv := redistest.Start(t, tt.args...)
			if tt.acl {
				srv.Do(t, "ACL", "SETUSER", "minimal", "on", ">p", "allkeys", "+@all", "-config")
			}
			s := overClient(t, srv.Addr(), func(o *redis.Options) {
				o.Protocol = tt.protocol
				if tt.acl {
					o.Username, o.Password = "minimal", "p"
				}
			})
			const warning = "the server has no persistence"
			require.NoError(t, s.Check(timeout(t, patience)))
			require.Zero(t, log.count(warning), "there is no receipt yet")
			take(t, s, tt.key, known("a"))
			ok, err := s.Settle(t.Context(), tt.key, known("a"), []byte("ordered"), time.Hour)
			must(t, true, ok, err)
			for range 3 {
				require.NoError(t, s.Check(timeout(t, patience)))
			}
			require.Equal(t, tt.warnings, log.count(warning))
			require.NotContains(t, failure.MinimalACL, "config", "it is not required")
		})
	}
}
