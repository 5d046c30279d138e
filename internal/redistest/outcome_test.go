package redistest_test

import (
	"fmt"
	"runtime"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/httplatch/httplatch/internal/redistest"
)

// verdict is a TB that remembers how it was ended.
type verdict struct {
	testing.TB

	skipped, failed string
}

func (v *verdict) Helper() {}

func (v *verdict) Fatal(args ...any) {
	v.failed = fmt.Sprint(args...)
	runtime.Goexit()
}

func (v *verdict) Fatalf(format string, args ...any) { v.Fatal(fmt.Sprintf(format, args...)) }

func (v *verdict) Skipf(format string, args ...any) {
	v.skipped = fmt.Sprintf(format, args...)
	runtime.Goexit()
}

// judged runs f as the body of a test that may end early.
func judged(t *testing.T, f func(testing.TB)) *verdict {
	t.Helper()
	v := &verdict{TB: t}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		f(v)
	}()
	<-ended
	return v
}

func TestNoServerSkipsButFailsInCI(t *testing.T) {
	t.Setenv("REDIS_SERVER", "/nonexistent/redis-server")
	for name, start := range map[string]func(testing.TB){
		"Start":  func(tb testing.TB) { redistest.Start(tb) },
		"Shared": func(tb testing.TB) { redistest.Shared(tb) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Setenv("CI", "")
			v := judged(t, start)
			require.Contains(t, v.skipped, "apt-get install redis-server")
			require.Contains(t, v.skipped, "/nonexistent/redis-server")
			require.Empty(t, v.failed)

			t.Setenv("CI", "true")
			v = judged(t, start)
			require.Contains(t, v.failed, "REDIS_SERVER=")
			require.Empty(t, v.skipped)
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
			require.Contains(t, judged(t, tt.start).failed, tt.want)
		})
	}
}
