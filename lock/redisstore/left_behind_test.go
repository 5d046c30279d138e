package redisstore_test

import (
	"context"
	"log/slog"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/httplatch/httplatch/internal/redistest"
	"github.com/httplatch/httplatch/internal/respproxy"
	"github.com/httplatch/httplatch/internal/sharing"
	"github.com/httplatch/httplatch/lock"
	"github.com/httplatch/httplatch/lock/redisstore"
)

// A caller that leaves while its claim is in a batch leaves it behind. If that
// batch ends without an answer, the claim may land at any time within MaxLag, and
// is swept for until then: one look at what is there when the batch has ended is
// not enough.
func TestClaimThatWasLeftBehindLandsLate(t *testing.T) {
	t.Parallel()
	const readTimeout, budget = 300 * time.Millisecond, 2 * time.Second
	srv := redistest.Start(t)
	p := respproxy.Start(t, srv.Addr())
	var s *redisstore.Store
	sharing.Always(func() { s = open(t, p.URL()+"?read_timeout="+readTimeout.String()) })
	l := lock.New(s, lock.WithLogger(slog.New(slog.DiscardHandler)), lock.WithBudget(budget), lock.WithLease(10*time.Minute))
	t.Cleanup(func() { require.NoError(t, l.Close(timeout(t, patience))) })

	held := p.On(respproxy.Match{Name: "set", Key: nameOf(t)}, respproxy.Hold())
	ctx, leave := context.WithCancel(t.Context())
	go func() {
		held.Wait(t, 1)
		leave()
	}()
	_, err := l.Acquire(ctx, keyFor(t))
	require.ErrorIs(t, err, lock.ErrUnknown)
	sweeps := p.On(respproxy.Match{Name: "evalsha", Key: nameOf(t)}, respproxy.Action{})
	<-timeout(t, 2*readTimeout).Done() // the batch has ended
	// Two more looks at what is there, if there are as many.
	enough, end := sweeps.Hits()+2, time.Now().Add(2*budget)
	for sweeps.Hits() < enough && time.Now().Before(end) {
		time.Sleep(10 * time.Millisecond)
	}
	require.Equal(t, 1, held.Deliver(t))
	held.WaitLanded(t)
	require.Eventually(t, func() bool { return len(srv.Keys(t)) == 0 }, 8*time.Second, 20*time.Millisecond, "long before its lease ends")
}
