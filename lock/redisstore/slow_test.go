package redisstore_test

import (
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/httplatch/httplatch/internal/testkit/testmain"
	"github.com/httplatch/httplatch/lock"
	"github.com/httplatch/httplatch/lock/redisstore"
)

// Every call ends within its budget, for any behaviour of the client, its hooks,
// its credentials provider and the server. It leaves nothing behind when the
// slow part is over and the client is closed.
func TestCallsEndWithinTheirBudgets(t *testing.T) {
	testmain.SkipIn(t, testmain.Quick|testmain.NewerServers, "plays each slow part with each kind of client")
	t.Parallel()
	for name, kind := range clientKinds(t) {
		for what, row := range slowRows() {
			if kind.hooked && row.hook == nil {
				continue
			}
			t.Run(name+"/"+what, func(t *testing.T) {
				t.Parallel()
				for _, violation := range row.play(t, kind, func(c redis.UniversalClient) lock.Store { return redisstore.New(c) }, 1, 8, 64) {
					t.Error(violation)
				}
			})
		}
	}
}
