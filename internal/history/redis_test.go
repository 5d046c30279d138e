package history_test

import (
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/httplatch/httplatch/internal/testkit/once"
	"github.com/httplatch/httplatch/internal/testkit/redistest"
	"github.com/httplatch/httplatch/internal/testkit/respproxy"
	"github.com/httplatch/httplatch/lock/redisstore"
)

// patienceOfCall is the time for which a client waits for one call.
const patienceOfCall = 150 * time.Millisecond

// redisFaults are the faults of commands, and how many of a thousand have each.
var redisFaults = []struct {
	name     string
	permille int
	action   respproxy.Action
}{
	{"reply lost, closed", 33, respproxy.Swallow(respproxy.Close)},
	{"reply lost, reset", 20, respproxy.Swallow(respproxy.Reset)},
	{"reply lost, hangs", 13, respproxy.Swallow(respproxy.Hang)},
	{"reply cut", 20, respproxy.CutReply(2)},
	{"reply late", 13, respproxy.DelayReply(10 * time.Millisecond)},
	{"request lost, closed", 13, respproxy.Drop(respproxy.Close)},
	{"request lost, reset", 6, respproxy.Drop(respproxy.Reset)},
	{"request lost, hangs", 6, respproxy.Drop(respproxy.Hang)},
	{"request held", 13, respproxy.HoldFor(10 * time.Millisecond)},
	{"request held beyond its call", 33, respproxy.HoldFor(patienceOfCall + 10*time.Millisecond)},
	{"refused", 6, respproxy.ReplyError("OOM command not allowed when used memory > 'maxmemory'.")},
	{"failed", 6, respproxy.ReplyError("upstream failure")},
	{"applied, then failed", 13, respproxy.ReplyErrorAfterApply("upstream failure")},
}

// redisWeather is the faults of one history over Redis.
type redisWeather struct {
	dice

	proxy  *respproxy.Proxy
	rules  []*respproxy.Rule
	counts *once.Counts
}

// dice are safe for concurrent use.
type dice struct {
	mu  sync.Mutex
	rng *rand.Rand
}

func (d *dice) draw(permille int) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.rng.IntN(1000) < permille
}

func (w *redisWeather) addr() string { return w.proxy.Addr() }

// begin lets faults happen to what passes, the handshakes of new connections apart.
func (w *redisWeather) begin(c *once.Counts) {
	w.counts = c
	for _, f := range redisFaults {
		match := respproxy.Match{Name: "set|eval|evalsha", Func: func([][]byte) bool { return w.draw(f.permille) }}
		w.rules = append(w.rules, w.proxy.On(match, f.action))
	}
}

// end counts what happened.
func (w *redisWeather) end() {
	for i, r := range w.rules {
		r.Remove()
		w.counts.AddN("fault: "+redisFaults[i].name, r.Hits())
	}
}

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
	begin(c *once.Counts) // in which it counts what happens
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
