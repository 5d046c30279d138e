package day

import (
	"cmp"
	"context"
	"fmt"
	"math/rand/v2"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/httplatch/httplatch/bench/internal/peer"
	"github.com/httplatch/httplatch/internal/testkit/faketx"
)

// Rate is the incident's: the share of requests to the server that meet a fate of the network.
// Half of them are applied and never answered; of two requests an order, with ten million
// orders, that is ten claims a day.
const Rate = 1e-6

// Config describes a day.
type Config struct {
	Contender
	TTL    time.Duration // or lease
	Orders int
	Seed   uint64
	Loss   float64       // share of requests; [Rate] times 1 or 1,000
	Length time.Duration // 0: 24 h
	Twice  float64       // share of customers who click twice; 0: 0.02
	Again  float64       // share of customers who order once more, within two minutes
	Long   float64       // share of handlers that take up to four leases
	Wait   time.Duration // of a customer between two tries, at most; 0: 5 min
	Desks  int           // 0: 8
	Pool   int           // connections of a desk to the server; 0: 20
	Keep   time.Duration // of answers, Long or 0: Keep
}

const (
	clientWait = 10 * time.Second // for an answer
	first      = 2 * time.Second  // between two tries of a customer, doubling up to longest, or Config.Wait
	longest    = 5 * time.Minute
	grace      = time.Second   // for the key of work that is done to be given back
	givesUp    = 4 * time.Hour // after the first try

	unheard  = 1e-4 // share of answers that do not reach their customers
	killed   = 8    // desks a day
	paused   = 8
	stalled  = 4 // times a day, the server
	restarts = 2
	failures = 1
	unsynced = 200 * time.Millisecond // of what was written is lost with a server that fails
)

// Outcome is the result of a day.
type Outcome struct {
	Orders      int
	LockedOut   int           // customers who were refused though no other request of theirs was there, nor had been for a second
	Minutes     float64       // for which, in all
	Longest     time.Duration // for one of them
	Refused     time.Duration `json:",omitzero"` // from the first to the last such refusal of one of them, without waits for desks that stand still
	Stuck       time.Duration `json:",omitzero"` // for one whose desks all lived, and since whose coming the server has lost nothing
	Doubled     int           // orders
	Forgotten   int           `json:",omitzero"` // of these, orders under way when the server failed over and lost keys
	Lost        int           // orders whose customers gave up
	FalseFailed int           // answers "not placed" of requests that had placed their order
	FalsePlaced int           // answers "placed" about orders that were not
	Calls       int           // customers whose waits had come to five minutes
	Commands    float64       // to the server, for an order

	Wall   time.Duration
	Heap   uint64 // bytes, at the end
	Traces []string
}

// day is one that runs.
type day struct {
	Config
	ctx       context.Context //nolint:containedctx // of Run, for what has no caller
	began     time.Time
	network   *network
	database  *faketx.Store
	waiting   sync.Map // orders by their names, until no commit can land
	desks     []atomic.Pointer[desk]
	failed    atomic.Int64 // when the server has failed over, in nanoseconds
	forgetful atomic.Bool  // it has lost keys

	mu       sync.Mutex
	random   *rand.Rand
	out      Outcome
	broken   []finding      // the first of each kind
	findings map[string]int // of each kind
	faults   []string
}

// finding is a promise that was broken about an order.
type finding struct {
	order *order
	what  string
}

// Run plays a day. It is called in a bubble of testing/synctest.
func Run(ctx context.Context, c Config) (Outcome, error) {
	c.Desks, c.Length, c.Twice = cmp.Or(c.desks, c.Desks, 8), cmp.Or(c.Length, 24*time.Hour), cmp.Or(c.Twice, 0.02)
	trips, err := readQuantiles(tripsFile)
	if err != nil {
		return Outcome{}, err
	}
	random := func(stream uint64) *rand.Rand { return rand.New(rand.NewPCG(c.Seed, stream)) } //nolint:gosec // not a secret
	d := &day{Config: c, ctx: ctx, began: time.Now(), random: random(1), findings: make(map[string]int), database: faketx.New(), desks: make([]atomic.Pointer[desk], c.Desks)}
	d.database.Committed(func(row string) {
		if o, ok := d.waiting.Load(row); ok {
			o.(*order).place("database") //nolint:errcheck,forcetypeassert // customer puts it there
		}
	})
	var lazy time.Duration
	if c.Keeps && c.Orders > 10_000 {
		lazy = time.Second
	}
	server, stop := newServer(lazy)
	defer stop()
	d.network = &network{server: server, trips: trips, loss: c.Loss, random: random(2)}
	for i := range d.desks {
		if err := d.open(i); err != nil {
			return Outcome{}, err
		}
	}
	var faults sync.WaitGroup
	d.plan(&faults)
	var customers sync.WaitGroup
	gap := float64(c.Length) / float64(c.Orders)
	for i := range c.Orders {
		time.Sleep(time.Duration(d.draw((*rand.Rand).ExpFloat64) * gap))
		customers.Go(func() { d.customer(i) })
	}
	customers.Wait()
	faults.Wait()
	d.end()
	for _, f := range d.broken {
		d.out.Traces = append(d.out.Traces, f.what+"\n\t"+strings.Join(f.order.traced, "\n\t"))
	}
	if len(d.broken) > 0 {
		d.out.Traces = append(d.out.Traces, "what went wrong in this day\n\t"+strings.Join(d.faults, "\n\t"))
	}
	d.out.Orders = c.Orders
	d.out.Commands = float64(d.network.requests.Load()) / float64(c.Orders)
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	d.out.Heap = m.HeapAlloc
	return d.out, nil
}

// draw returns a random value.
func (d *day) draw(of func(*rand.Rand) float64) float64 {
	d.mu.Lock()
	defer d.mu.Unlock()
	return of(d.random)
}

func (d *day) chance(share float64) bool { return d.draw((*rand.Rand).Float64) < share }

func (d *day) between(low, high time.Duration) time.Duration {
	return low + time.Duration(d.draw((*rand.Rand).Float64)*float64(high-low))
}

func (d *day) randomOf(n int) int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.random.IntN(n)
}

// at is the time of the day.
func (d *day) at() string { return time.Time{}.Add(time.Since(d.began)).Format("15:04:05.000") }

// open starts a process for desk i.
func (d *day) open(i int) error {
	p := newProcess()
	g, err := d.Contender.open(d.ctx, site{
		Target:  peer.Target{Addr: "127.0.0.1:1", Pool: cmp.Or(d.Pool, 20), Lease: d.TTL, Dial: d.network.dialer(p)},
		network: d.network, process: p, database: d.database, keep: cmp.Or(d.Keep, Keep),
	})
	if err != nil {
		return err
	}
	d.desks[i].Store(&desk{day: d, name: fmt.Sprintf("desk %d", i), process: p, guard: g})
	return nil
}

// plan has what happens in a day happen.
func (d *day) plan(all *sync.WaitGroup) {
	at := func(when time.Duration, do func()) {
		all.Go(func() {
			time.Sleep(when)
			do()
		})
	}
	anyTime := func() time.Duration { return d.between(0, d.Length) }
	for range killed {
		at(anyTime(), func() { d.kill(d.randomOf(len(d.desks))) })
	}
	for range paused {
		at(anyTime(), func() {
			if k := d.desks[d.randomOf(len(d.desks))].Load(); k != nil {
				stands := d.between(d.TTL/2, 2*d.TTL+30*time.Second)
				k.process.pause(stands)
				d.fault("%s stands still for %v, unless it does already", k.name, stands)
			}
		})
	}
	for range stalled {
		at(anyTime(), func() {
			stalls := d.between(time.Second, 6*time.Second)
			d.fault("the server stalls for %v", stalls)
			d.network.server.stallFor(stalls)
		})
	}
	for range restarts {
		at(anyTime(), func() {
			gone := d.between(500*time.Millisecond, 3*time.Second)
			d.fault("the server restarts within %v", gone)
			d.network.server.restart(gone)
		})
	}
	for range failures {
		at(anyTime(), func() {
			forgotten := d.network.server.failOver(d.between(time.Second, 3*time.Second), unsynced)
			d.failed.Store(time.Now().UnixNano())
			d.forgetful.Store(len(forgotten) > 0)
			d.fault("the server fails over, and has forgotten %q", forgotten)
		})
	}
	deploys := anyTime()
	for i := range d.desks {
		at(deploys+time.Duration(i)*time.Minute, func() { d.deploy(i) })
	}
}

// kill ends a process at once, and starts another one some seconds later.
func (d *day) kill(i int) {
	k := d.desks[i].Swap(nil)
	if k == nil {
		return
	}
	d.fault("%s is killed", k.name)
	k.process.hurt.Store(true)
	k.process.kill()
	time.Sleep(d.between(time.Second, 10*time.Second))
	if err := d.open(i); err != nil {
		panic(err)
	}
	k.atWork.Wait()
	d.closeFor(k.guard, time.Second)
}

// deploy replaces a process as its operator does: it takes no more orders, ends those it has,
// and closes.
func (d *day) deploy(i int) {
	k := d.desks[i].Load()
	if k == nil || !d.desks[i].CompareAndSwap(k, nil) {
		return
	}
	d.fault("%s is deployed", k.name)
	k.atWork.Wait()
	d.closeFor(k.guard, 30*time.Second)
	k.process.kill()
	if err := d.open(i); err != nil {
		panic(err)
	}
}

func (d *day) closeFor(g guard, most time.Duration) {
	ctx, cancel := context.WithTimeout(d.ctx, most)
	defer cancel()
	g.close(ctx)
}

// end closes all.
func (d *day) end() {
	for i := range d.desks {
		if k := d.desks[i].Load(); k != nil {
			k.atWork.Wait()
			d.closeFor(k.guard, 30*time.Second)
		}
	}
	time.Sleep(2 * longestLate) // what was on its way
	d.network.server.redis.Close()
}

// pick returns a desk that takes orders, as a load balancer does.
func (d *day) pick() *desk {
	for range 100 {
		if k := d.desks[d.randomOf(len(d.desks))].Load(); k != nil {
			return k
		}
	}
	return nil
}

// found keeps an order about which a promise was broken: its trace goes on to the end of the day.
func (d *day) found(o *order, what string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.findings[what]++; d.findings[what] <= 20 {
		d.broken = append(d.broken, finding{o, d.at() + " " + o.id + ": " + what})
	}
}

// fault notes what goes wrong at this moment.
func (d *day) fault(what string, args ...any) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.faults = append(d.faults, d.at()+" "+fmt.Sprintf(what, args...))
}

// score adds to what the day has come to.
func (d *day) score(add func(*Outcome)) {
	d.mu.Lock()
	defer d.mu.Unlock()
	add(&d.out)
}
