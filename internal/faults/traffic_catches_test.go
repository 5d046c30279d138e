package faults_test

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/httplatch/httplatch/internal/testkit/redistest"
	"github.com/httplatch/httplatch/internal/testkit/respproxy"
	"github.com/httplatch/httplatch/internal/testkit/testmain"
	"github.com/httplatch/httplatch/lock"
)

// The twin of what is found at keys that only one caller wants: one that reads a lost reply as
// a refusal. It is refused by itself, for as long as its dead claim lasts.
func TestTrafficCatches(t *testing.T) {
	testmain.SkipIn(t, testmain.Short|testmain.NewerServers, "checks the test of traffic with a planted fault")
	t.Parallel()
	server := redistest.Start(t)
	proxy := respproxy.Start(t, server.Addr())
	w := newWitness(open(t, proxy.URL()))
	c := &caller{client: "naive", budget: ampleBudget, store: w, locker: locker(t, naiveClaim{w}, lock.WithLease(trafficLease), lock.WithBudget(ampleBudget))}
	tr := newTraffic(t)
	tr.own(c, "user=own")
	tr.flow(t, 10)
	require.Empty(t, tr.failures())

	lost := time.Now()
	proxy.On(respproxy.Match{Name: claims, Key: "user=own", Count: 1}, respproxy.Swallow(respproxy.Close))
	until(t, func() bool { return len(tr.violations(lost, lost)) > 0 })
	tr.end()
	found := strings.Join(tr.violations(lost, lost), "\n")
	require.Contains(t, found, "no-self-conflict: user=own is refused, and has no other caller")
}
