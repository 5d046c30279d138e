package redistest_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/httplatch/httplatch/internal/testkit/redistest"
	"github.com/httplatch/httplatch/internal/testkit/testmain"
)

func TestNoServerSkipsButFailsInCI(t *testing.T) {
	t.Setenv("REDIS_SERVER", "/nonexistent/redis-server")
	for name, start := range map[string]func(testing.TB){
		"Start":  func(tb testing.TB) { redistest.Start(tb) },
		"Shared": func(tb testing.TB) { redistest.Shared(tb) },
	} {
		t.Run(name, func(t *testing.T) {
			testmain.RequireUnavailable(t, start, "apt-get install redis-server", "REDIS_SERVER=", "/nonexistent/redis-server")
		})
	}
}

func TestBadUseFailsWithAReason(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		start func(testing.TB)
		want  string
	}{
		"impossible option, with the server's own words": {
			func(tb testing.TB) { redistest.Start(tb, "--maxmemory-policy", "1") }, "FATAL CONFIG FILE ERROR",
		},
		"port":        {func(tb testing.TB) { redistest.Start(tb, "--port", "6379") }, "chosen by Start"},
		"no masters":  {func(tb testing.TB) { redistest.StartCluster(tb, 0, nil) }, "needs a master"},
		"error reply": {func(tb testing.TB) { redistest.Shared(tb).Do(tb, "NOSUCH") }, "unknown command"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			require.Contains(t, testmain.Judge(t, tt.start).WhyFailed, tt.want)
		})
	}
}
