package redistest_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/httplatch/httplatch/internal/testkit/redistest"
	"github.com/httplatch/httplatch/internal/testkit/testmain"
)

func TestStartWithClock(t *testing.T) {
	t.Parallel()
	s, clock := redistest.StartWithClock(t)
	other := redistest.Shared(t)
	s.Do(t, "SET", "short", "v", "EX", 60)
	s.Do(t, "SET", "long", "v", "EX", 7200)

	for _, ahead := range []time.Duration{0, time.Hour, -time.Hour, 1500 * time.Microsecond, -1500 * time.Microsecond} {
		clock.Set(t, ahead)
		require.InDelta(t, time.Now().Add(ahead).UnixMilli(), millis(t, s), 5000)
		require.InDelta(t, time.Now().UnixMilli(), millis(t, other), 5000, "others have their own")
		if ahead == time.Hour {
			require.Equal(t, []string{"long"}, s.Keys(t), "what is expired by the clock is gone")
		}
	}
	left, ok := s.Do(t, "TTL", "long").(int64)
	require.True(t, ok)
	require.InDelta(t, 7200, left, 30)

	clock.Set(t, time.Hour)
	s.Restart(t)
	require.InDelta(t, time.Now().Add(time.Hour).UnixMilli(), millis(t, s), 5000, "it keeps its clock")
}

// millis is a server's clock as scripts see it, which may cache it.
func millis(t *testing.T, s *redistest.Server) int64 {
	t.Helper()
	var script int64
	text := s.Do(t, "EVAL", "local t = redis.call('TIME'); return t[1] .. string.format('%03d', t[2] / 1000)", 0)
	_, err := fmt.Sscan(fmt.Sprint(text), &script)
	require.NoError(t, err)
	return script
}

func TestNoCompilerSkipsButFailsInCI(t *testing.T) {
	redistest.Shared(t) // or there is no server either
	t.Setenv("CC", "/nonexistent/cc -m64")
	start := func(tb testing.TB) { redistest.StartWithClock(tb) }
	testmain.RequireUnavailable(t, start, "no C compiler", "apt-get install gcc", "/nonexistent/cc")
}
