package history_test

import (
	"math/rand/v2"
	"sync"
	"time"

	"github.com/httplatch/httplatch/internal/respproxy"
)

// patienceOfCall is how long a client waits for one call.
const patienceOfCall = 150 * time.Millisecond

// faults are what happens to commands, and to how many of a thousand.
var faults = []struct {
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

// weather is the faults of one history.
type weather struct {
	rules []*respproxy.Rule
	dark  *respproxy.Rule

	mu    sync.Mutex
	rng   *rand.Rand
	spell map[string]int // how many commands on a key will get no reply
}

// darkness is how many commands on a key in a row get no reply, of one key in
// darkKeys: enough for a Locker to give up.
const (
	darkness = 6
	darkKeys = 5
)

// brew lets faults happen to what passes p, the handshakes of new connections
// apart.
func brew(p *respproxy.Proxy, rng *rand.Rand) *weather {
	w := &weather{rng: rng, spell: map[string]int{}}
	on := func(action respproxy.Action, happens func(args [][]byte) bool) *respproxy.Rule {
		return p.On(respproxy.Match{Name: "set|eval|evalsha", Func: happens}, action)
	}
	w.dark = on(respproxy.Swallow(respproxy.Hang), w.darkens)
	for _, f := range faults {
		w.rules = append(w.rules, on(f.action, func([][]byte) bool { return w.draw(f.permille) }))
	}
	return w
}

func (w *weather) draw(permille int) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.rng.IntN(1000) < permille
}

func (w *weather) darkens(args [][]byte) bool {
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
func (w *weather) end(c *counts) {
	w.dark.Remove()
	c.add("faults", "all replies lost", w.dark.Hits())
	for i, r := range w.rules {
		r.Remove()
		c.add("faults", faults[i].name, r.Hits())
	}
}
