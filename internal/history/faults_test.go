package history_test

import (
	"math/rand/v2"
	"sync"
	"time"

	"github.com/httplatch/httplatch/internal/testkit/respproxy"
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

	proxy *respproxy.Proxy
	rules []*respproxy.Rule
	dark  *respproxy.Rule
	spell map[string]int // how many commands on a key will get no reply
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

// darkness is the number of commands in a row that get no reply, on one key of darkKeys: enough for
// a Locker to give up.
const (
	darkness = 6
	darkKeys = 5
)

func (w *redisWeather) addr() string { return w.proxy.Addr() }

// begin lets faults happen to what passes, the handshakes of new connections apart.
func (w *redisWeather) begin() {
	on := func(action respproxy.Action, happens func(args [][]byte) bool) *respproxy.Rule {
		return w.proxy.On(respproxy.Match{Name: "set|eval|evalsha", Func: happens}, action)
	}
	w.dark = on(respproxy.Swallow(respproxy.Hang), w.darkens)
	for _, f := range redisFaults {
		w.rules = append(w.rules, on(f.action, func([][]byte) bool { return w.draw(f.permille) }))
	}
}

func (w *redisWeather) darkens(args [][]byte) bool {
	key := string(args[1])
	if len(args) > 3 && len(args[0]) > len("set") {
		key = string(args[3])
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	left, known := w.spell[key]
	if !known && w.rng.IntN(darkKeys) == 0 {
		left = darkness
	}
	w.spell[key] = max(left-1, 0)
	return left > 0
}

// end counts what happened.
func (w *redisWeather) end(c *counts) {
	w.dark.Remove()
	c.add("faults", "all replies lost", w.dark.Hits())
	for i, r := range w.rules {
		r.Remove()
		c.add("faults", redisFaults[i].name, r.Hits())
	}
}
