package redisstore_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/httplatch/httplatch/internal/testkit/redistest"
	"github.com/httplatch/httplatch/internal/testkit/respproxy"
	"github.com/httplatch/httplatch/internal/testkit/testmain"
	"github.com/httplatch/httplatch/lock"
)

// A store knows a server's clock to within a round trip, and uses the earlier
// end: a claim whose request took the whole round trip must not pass after its
// caller has given up.
func TestLateClaimsOverASlowNetwork(t *testing.T) {
	testmain.SkipIn(t, testmain.Quick, "holds requests back for 2 s")
	t.Parallel()
	const trip = 2 * time.Second
	p := respproxy.Start(t, redistest.Shared(t).Addr())
	s := open(t, p.URL())
	slow := p.On(respproxy.Match{Name: "evalsha"}, respproxy.HoldFor(trip)) // of requests; replies are quick
	take(t, s, "clock-"+keyFor(t), fenced("a"))
	slow.Remove()

	held := p.On(respproxy.Match{Name: "evalsha", Key: nameOf(t)}, respproxy.Hold())
	requireUnknown(t, untilSent(t, func() error {
		_, err := s.Claim(timeout(t, 100*time.Millisecond), keyFor(t), fenced("late"))
		return err
	}), "silent")
	held.Wait(t, 1)
	require.Equal(t, 1, held.Deliver(t), "after its deadline, and much less than a round trip after it")
	held.Remove()
	e, err := s.Get(timeout(t, patience), keyFor(t))
	require.NoError(t, err)
	require.Equal(t, lock.Free, e.State)
}
