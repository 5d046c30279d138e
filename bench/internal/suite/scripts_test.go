package suite_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/httplatch/httplatch/bench/internal/peer"
	"github.com/httplatch/httplatch/lock"
	"github.com/httplatch/httplatch/lock/redisstore"
)

const scriptCallers = 256

// BenchmarkScripts compares the server's own compare-and-act with scripts, on the server
// that REDIS_SERVER names: it needs Valkey 9.0 or Redis 8.4. Renewals are of 256 callers,
// each of its own lease.
func BenchmarkScripts(b *testing.B) {
	srv := startServer(b)
	sent := srv.sentBy(b, peer.Compared())
	name := func(p peer.Peer) string { return p.Name }
	for round := range *rounds {
		inTurns(b, round, callersCase(scriptCallers), each(peer.Compared(), name, func(b *testing.B, p peer.Peer) {
			measureCycle(b, srv, p, scriptCallers, sent[p.Name])
		}))
		inTurns(b, round, "renewals", []contender{
			{peer.Ours, func(b *testing.B) { measureRenewals(b, srv, func(s *redisstore.Store) lock.Store { return s }) }},
			{peer.Scripted, func(b *testing.B) {
				measureRenewals(b, srv, func(s *redisstore.Store) lock.Store { return peer.ByToken{Store: s} })
			}},
		})
	}
}

var errNotRenewed = errors.New("bench: a lease was not renewed")

func measureRenewals(b *testing.B, srv *server, renewing func(s *redisstore.Store) lock.Store) {
	b.Helper()
	client := peer.NewClient(target(srv.addr))
	defer func() { _ = client.Close() }()
	store := redisstore.New(client)
	defer func() { _ = store.Close() }()
	srv.flush(b)
	callers, renewer := most(scriptCallers), renewing(store)
	key := keys(callers)
	claim := lock.Claim{Token: "t", Attempt: 1, Owner: "bench", Lease: time.Minute, Longest: true}
	for caller := range callers {
		_, err := store.Claim(b.Context(), key(caller, 0), claim)
		require.NoError(b, err)
	}
	closedLoop(b, srv, nil, callers, func(ctx context.Context, caller, _ int) error {
		ok, err := renewer.Renew(ctx, key(caller, 0), claim)
		if err == nil && !ok {
			err = errNotRenewed
		}
		return err
	})
}
