package lock_test

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/httplatch/httplatch/lock"
	"github.com/httplatch/httplatch/lock/internal/testkit/fault"
)

// The log says when an outage begins and when it is over. A call that happens to be served during an
// outage does not end it, and an outage soon after another has its line too.
func TestEndOfAnOutageIsLogged(t *testing.T) {
	for name, call := range map[string]func(t *testing.T, l *lock.Locker) error{
		"key": func(t *testing.T, l *lock.Locker) error { return l.Do(t.Context(), key, nothing) },
		"set": func(t *testing.T, l *lock.Locker) error {
			return l.DoAll(t.Context(), []string{key, key + "b"}, nothing)
		},
	} {
		bubbleCase(t, name, func(t *testing.T, s *fault.Store, open func(...lock.Option) *lock.Locker) {
			var b logbook
			l := open(b.option())
			count := func(line string) (n int) {
				for _, each := range b.lines() {
					if strings.Contains(each, line) {
						n++
					}
				}
				return n
			}
			const failed, served = "level=ERROR", `level=INFO msg="lock: the store serves calls again"`
			for round := range 2 {
				require.NoError(t, call(t, l))
				require.Equal(t, round, count(served), "and never without an outage")
				s.Every(fault.Refuse)
				require.Error(t, call(t, l))
				time.Sleep(10 * time.Second)
				require.Error(t, call(t, l))
				s.Every(nil)
				require.Equal(t, round+1, count(failed))

				time.Sleep(time.Second)
				require.NoError(t, call(t, l))
				require.Equal(t, round, count(served), "one answer may be luck")
				time.Sleep(5 * time.Second)
				require.NoError(t, call(t, l))
				require.Equal(t, round+1, count(served))
				require.NoError(t, call(t, l))
				require.Equal(t, round+1, count(served), "once")
			}
			require.Contains(t, strings.Join(b.lines(), "\n"), "failed_for=10")
		})
	}
}
