package suite_test

import (
	"context"
	"flag"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/httplatch/httplatch/internal/overload"
	"github.com/httplatch/httplatch/internal/testkit/redistest"
	"github.com/httplatch/httplatch/lock"
	"github.com/httplatch/httplatch/lock/redisstore"
)

var quiet = flag.Float64("quiet", 0,
	"overload, outage: wait until everything else uses less than so many cores, and play a scenario again, four times at most, if it did not stay so; 0: do not look")

// How the store is made, each over a client with default options.
const (
	withOpen = "Open"
	withNew  = "New"
)

// constructors makes a contender of each.
func constructors(run func(b *testing.B, constructor string)) []contender {
	return each([]string{withOpen, withNew}, func(c string) string { return c }, run)
}

// scenario is a load, a network or an outage. A child plays it, so that neither goroutines
// nor clean-ups of one are left to the next.
type scenario struct {
	Constructor string
	Room        int               // commands a second that the server has room for; 0: all it can do
	Load        *overload.Load    `json:",omitempty"`
	Network     *overload.Network `json:",omitempty"`
	Outage      *outage           `json:",omitempty"`
}

type outcome struct {
	Room     float64            // in cycles a second, by bare commands
	Load     *overload.Outcome  `json:",omitempty"`
	Phases   []overload.Passed  `json:",omitempty"`
	Recovery *overload.Recovery `json:",omitempty"`
}

// run has a child play the scenario, again if the machine was not quiet. The last play counts.
func (s scenario) run(b *testing.B) (o *outcome) {
	b.Helper()
	const attempts, patience = 5, 10 * time.Minute
	for range attempts {
		for began, busy := time.Now(), *quiet; *quiet > 0 && busy >= *quiet && time.Since(began) < patience; {
			busy = overload.Busy(time.Second)
		}
		a, err := start(b, job{Kind: "scenario", Scenario: &s}).ask()
		require.NoError(b, err)
		o = a.Outcome
		if *quiet == 0 || o.others() <= *quiet {
			break
		}
		b.Logf("others used %.1f cores", o.others())
	}
	return o
}

// others returns the cores that the rest of the machine used, without the usual share of a
// server that is used in full.
func (o outcome) others() float64 {
	const server = 0.7
	switch {
	case o.Load != nil:
		return o.Load.CPU.Others
	case o.Recovery == nil:
		return 0
	}
	return o.Recovery.CPU.Others - server
}

// play is the child's side of run.
func (s scenario) play(t *testing.T) *outcome {
	t.Helper()
	server := redistest.Start(t)
	proxy := startProxy(t, server.Addr(), s.Room)
	o := &outcome{}
	if s.Load != nil {
		var err error
		o.Room, err = overload.Room(t.Context(), proxy.Addr(), 2*time.Second)
		require.NoError(t, err)
	}
	locker := s.locker(t, proxy.Addr())
	switch {
	case s.Load != nil:
		result := s.Load.Run(t.Context(), locker, proxy)
		o.Load = &result
	case s.Network != nil:
		o.Phases = s.Network.Run(t.Context(), locker, proxy)
	default:
		recovery, err := s.Outage.with(t, proxy, server).Run(t.Context(), locker, proxy)
		require.NoError(t, err)
		o.Recovery = &recovery
	}
	return o
}

// locker has default options. Its clean-ups are not waited for at the end: the server goes.
func (s scenario) locker(t *testing.T, addr string) *lock.Locker {
	t.Helper()
	var store *redisstore.Store
	if s.Constructor == withOpen {
		var err error
		store, err = redisstore.Open(t.Context(), "redis://"+addr)
		require.NoError(t, err)
	} else {
		client := redis.NewClient(&redis.Options{Addr: addr})
		t.Cleanup(func() { _ = client.Close() })
		store = redisstore.New(client)
	}
	l := lock.New(store)
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), time.Second)
		defer cancel()
		_ = l.Close(ctx)
		_ = store.Close()
	})
	return l
}
