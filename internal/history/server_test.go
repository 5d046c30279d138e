package history_test

import (
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/httplatch/httplatch/internal/testkit/redistest"
	"github.com/httplatch/httplatch/internal/testkit/respproxy"
	"github.com/httplatch/httplatch/lock/redisstore"
)

// server is the server of the stores of histories.
type server interface {
	addr(t *testing.T) string
	// disturb starts a proxy for one history, with faults that are still to begin.
	disturb(t *testing.T, rng *rand.Rand) weather
	// open returns a store of the server at addr, or of a proxy there.
	open(t *testing.T, addr string) store
	// faults are the names of all that can happen at a proxy.
	faults() []string
	// deadlines reports whether a fenced claim that comes later than its call has
	// time for is refused.
	deadlines() bool
}

// weather is the faults of one history.
type weather interface {
	addr() string
	begin(c *counts) // in which it counts what happens
	end()
}

// onRedis is the one server of Redis of these tests.
type onRedis struct{}

func (onRedis) addr(t *testing.T) string {
	t.Helper()
	return redistest.Shared(t).Addr()
}

func (s onRedis) disturb(t *testing.T, rng *rand.Rand) weather {
	t.Helper()
	return &redisWeather{dice: dice{rng: rng}, proxy: respproxy.Start(t, s.addr(t))}
}

// patient are time-outs for a busy machine. Calls have their own deadlines, and the store gives up a
// connection this long after the deadline of a call whose reply was lost.
const patient = "?dial_timeout=30s&read_timeout=2s"

func (onRedis) open(t *testing.T, addr string) store {
	t.Helper()
	s, err := redisstore.Open(t.Context(), "redis://"+addr+patient)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, s.Close()) })
	return s
}

func (onRedis) faults() (names []string) {
	for _, f := range redisFaults {
		names = append(names, f.name)
	}
	return names
}

func (onRedis) deadlines() bool { return true }
