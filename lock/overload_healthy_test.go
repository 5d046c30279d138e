package lock_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/httplatch/httplatch/internal/overload"
	"github.com/httplatch/httplatch/internal/testkit/testmain"
)

// A server that is well refuses no caller, whether it is idle, busy, or meets a
// thousand of them at once.
func TestHealthyServerRefusesNoCaller(t *testing.T) {
	testmain.SkipIn(t, testmain.Quick, "measures time")
	t.Run("idle", func(t *testing.T) {
		l, end := crowded(t, narrow(t, roomCommands).Addr(), overloadTwin{})
		defer end()
		for range 20 {
			require.Zero(t, overload.Burst(t.Context(), l, 1).Failed.All())
			time.Sleep(10 * time.Millisecond)
		}
	})
	t.Run("steady at 0.8 C", func(t *testing.T) {
		load := overload.Load{PerSecond: 0.8 * roomCommands / 2, For: 2 * time.Second}
		require.Empty(t, undisturbed(t, func() ([]string, time.Duration) {
			proxy := narrow(t, roomCommands)
			l, end := crowded(t, proxy.Addr(), overloadTwin{})
			defer end()
			o := load.Run(t.Context(), l, proxy)
			return refused("steady", overload.Total(o.Seconds).Failed, 0), o.Timers.P99
		}))
	})
	t.Run("bursts of 1,000", func(t *testing.T) {
		require.Empty(t, undisturbed(t, func() (wrong []string, late time.Duration) {
			l, end := crowded(t, narrow(t, 0).Addr(), overloadTwin{})
			defer end()
			for burst := range 4 {
				allowed := int64(0)
				if burst == 0 {
					allowed = 10 // nothing is known of the server
				}
				b := overload.Burst(t.Context(), l, 1000)
				wrong = append(wrong, refused(fmt.Sprintf("burst %d", burst), b.Failed, allowed)...)
				late = max(late, b.Timers.P99)
				time.Sleep(100 * time.Millisecond)
			}
			return wrong, late
		}))
	})
}

// refused returns a mistake if more callers than allowed were not served.
func refused(when string, failed overload.Failures, allowed int64) []string {
	if failed.All() <= allowed {
		return nil
	}
	return []string{fmt.Sprintf("%s: %v not served", when, failed)}
}
