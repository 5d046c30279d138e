package lock_test

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/httplatch/httplatch/internal/testkit/journal"
	"github.com/httplatch/httplatch/lock"
	"github.com/httplatch/httplatch/lock/internal/testkit/fault"
)

// The log says when an outage begins and when it is over. A call that happens to be served during an
// outage does not end it, and an outage soon after another has its line too.
func TestEndOfAnOutageIsLogged(t *testing.T) {
	for of, do := range contenders {
		bubbleCase(t, of, func(t *testing.T, s *fault.Store, open func(...lock.Option) *lock.Locker) {
			var b journal.Journal
			l := open(lock.WithLogger(b.Logger()))
			call := func() error { return do(t.Context(), l, nothing) }
			count := func(text string) int { return strings.Count(strings.Join(b.Lines(), "\n"), text) }
			const failed, served = "level=ERROR", `level=INFO msg="lock: the store serves calls again"`
			for round := range 2 {
				require.NoError(t, call())
				require.Equal(t, round, count(served), "and never without an outage")
				s.Every(fault.Refuse)
				require.Error(t, call())
				time.Sleep(10 * time.Second)
				require.Error(t, call())
				s.Every(nil)
				require.Equal(t, round+1, count(failed))

				time.Sleep(time.Second)
				require.NoError(t, call())
				require.Equal(t, round, count(served), "one answer may be luck")
				time.Sleep(5 * time.Second)
				require.NoError(t, call())
				require.Equal(t, round+1, count(served))
				require.NoError(t, call())
				require.Equal(t, round+1, count(served), "once")
			}
			require.Positive(t, count("failed_for=10"))
		})
	}
}
