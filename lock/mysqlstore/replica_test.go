package mysqlstore_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/httplatch/httplatch/internal/testkit/must"
	"github.com/httplatch/httplatch/internal/testkit/mysqltest"
	"github.com/httplatch/httplatch/lock"
)

// COMMITs wait for a replica, and here there is none. So a receipt is not returned. The twin reads
// the row, which the server shows.
func TestReceiptWaitsForTheReplica(t *testing.T) {
	t.Parallel()
	if !isMariaDB(t) {
		t.Skip("SKIPPED: the settings are MariaDB's")
	}
	server := mysqltest.Start(t, mysqltest.Replicated(1, mysqltest.SemiSynchronous()...)...)
	s := shopOf(t, server, server.Addr())
	_, tx := s.begin(t, "k")
	must.Yes(t)(tx.Settle(t.Context(), []byte("receipt"), time.Hour))
	s.exec(t, "SET GLOBAL rpl_semi_sync_master_enabled = ON")
	for name, ask := range map[string]func(ctx context.Context) (lock.Entry, error){
		"get": func(ctx context.Context) (lock.Entry, error) { return s.store.Get(ctx, "k") },
		"claim": func(ctx context.Context) (lock.Entry, error) {
			return s.store.Claim(ctx, "k", lock.Claim{Token: "another", Attempt: 1, Lease: time.Minute})
		},
	} {
		ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
		e, err := ask(ctx)
		cancel()
		require.Error(t, err, name)
		require.Equal(t, lock.Free, e.State, name)
	}
	var settled bool
	require.NoError(t, s.DB.QueryRowContext(t.Context(), "SELECT settled FROM latch_entries").Scan(&settled))
	require.True(t, settled)
	s.exec(t, "SET GLOBAL rpl_semi_sync_master_enabled = OFF")
	e := must.Entry(t)(s.store.Get(t.Context(), "k"))
	require.Equal(t, lock.Settled, e.State)
}

// The plugin of semi-synchronous replication goes, as in a failover to a server without it, and comes.
func TestPluginOfReplicationThatGoes(t *testing.T) {
	t.Parallel()
	if isMariaDB(t) {
		t.Skip("SKIPPED: MariaDB has it built in")
	}
	server := mysqltest.Start(t)
	server.Exec(t, "", "INSTALL PLUGIN rpl_semi_sync_source SONAME 'semisync_source.so'")
	s := shopOf(t, server, server.Addr())
	for range 2 {
		_, tx := s.begin(t, "k")
		must.Yes(t)(tx.Settle(t.Context(), []byte("receipt"), time.Hour))
		e := must.Entry(t)(s.store.Get(t.Context(), "k"))
		require.Equal(t, lock.Settled, e.State)
		must.Yes(t)(s.store.Forget(t.Context(), "k", e.Token))
		server.Exec(t, "", "UNINSTALL PLUGIN rpl_semi_sync_source")
		must.Entry(t)(s.store.Get(t.Context(), "k"))
		server.Exec(t, "", "INSTALL PLUGIN rpl_semi_sync_source SONAME 'semisync_source.so'")
	}
}
