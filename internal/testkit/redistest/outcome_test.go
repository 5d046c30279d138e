package redistest_test

import (
	"testing"

	"github.com/httplatch/httplatch/internal/testkit/redistest"
	"github.com/httplatch/httplatch/internal/testkit/testmain"
)

func TestNoServerSkipsButFailsInCI(t *testing.T) {
	t.Setenv("REDIS_SERVER", "/nonexistent/redis-server")
	for _, start := range []func(testing.TB){
		func(tb testing.TB) { redistest.Start(tb) },
		func(tb testing.TB) { redistest.Shared(tb) },
	} {
		testmain.RequireUnavailable(t, start, "apt-get install redis-server", "REDIS_SERVER=", "/nonexistent/redis-server")
	}
}
