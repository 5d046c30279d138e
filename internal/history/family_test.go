package history_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/httplatch/httplatch/internal/keytext"
	"github.com/httplatch/httplatch/internal/testkit/once"
)

const (
	// operations are in one history, at least, unless it takes longest: on a busy machine calls end before
	// they have a connection, and what was not applied is no operation.
	operations = 500
	longest    = 10 * time.Second
	// rooms are the rooms of a history. In each there are clients, and direct of them have a good
	// network.
	rooms   = 4
	clients = 4
	direct  = 2
)

// family is a kind of history.
type family struct {
	name   string
	server server
	lease  time.Duration
	linger time.Duration
	keep   time.Duration
	rest   time.Duration // the longest pause between two calls of a client
	fenced bool
	// near is the store without a proxy. Histories may share it.
	near  store
	plant *wrong // nil: the store is right
}

var (
	lasting   = family{name: "lasting", lease: endless, keep: endless, rest: 15 * time.Millisecond}
	fenced    = family{name: "fenced", lease: endless, linger: endless, keep: endless, rest: 15 * time.Millisecond, fenced: true}
	lapsing   = family{name: "lapsing", lease: 50 * time.Millisecond, linger: 80 * time.Millisecond, keep: 60 * time.Millisecond, rest: 15 * time.Millisecond}
	lingering = family{name: "lingering", lease: 40 * time.Millisecond, linger: endless, keep: 60 * time.Millisecond, rest: 15 * time.Millisecond}
	brief     = family{name: "brief", lease: 12 * time.Millisecond, keep: 12 * time.Millisecond, rest: 30 * time.Millisecond, fenced: true}

	families = []family{lasting, fenced, lapsing, lingering, brief}
)

// run makes a history and returns what is wrong with it.
func (f family) run(t *testing.T, seed uint64, c *once.Counts) error {
	t.Helper()
	w := f.server.disturb(t, rand.New(rand.NewPCG(seed, 0)))
	disturbed, undisturbed := f.open(t, w.addr()), f.near
	if undisturbed == nil {
		undisturbed = f.open(t, f.server.addr(t))
	}
	h := newHistory(c)
	h.deadlines = f.server.deadlines()
	w.begin(c)
	var all sync.WaitGroup
	ctx := context.WithoutCancel(t.Context())
	for i := range rooms {
		room := &room{name: fmt.Sprintf("%shistory-%d-%x-room%d", []string{"", keytext.RecordPrefix}[i%2], seed, h.wall.UnixNano(), i)}
		for j := range clients {
			s := &witness{h: h, client: i*clients + j, store: disturbed}
			if j < direct {
				s.store = undisturbed
			}
			client := &client{family: f, store: s, rng: rand.New(rand.NewPCG(seed, 1+uint64(s.client)))}
			all.Go(func() { client.work(ctx, room) })
		}
	}
	all.Wait()
	w.end()
	c.Add("histories: " + f.name)
	c.AddN("operations: "+f.name, h.size())
	if err := f.judge(t, seed).check(h.model(), h.partitions()); err != nil {
		return err
	}
	return h.oddities()
}

// over is the same kind of history of another server.
func (f family) over(s server) family {
	f.server = s
	return f
}

// open returns a store of the server at addr.
func (f family) open(t *testing.T, addr string) store {
	t.Helper()
	s := f.server.open(t, addr)
	if f.plant != nil {
		w := *f.plant
		w.store = s
		return w
	}
	return s
}

func (f family) judge(t *testing.T, seed uint64) judge {
	t.Helper()
	name := fmt.Sprintf("history-%d-%s", seed, f.name)
	if f.plant != nil {
		// There are more histories if one takes long, and no reader looks at it.
		return judge{5 * time.Second, filepath.Join(t.TempDir(), name)}
	}
	return judge{3 * time.Minute, filepath.Join(gallery(t), name)}
}
