package day

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"github.com/httplatch/httplatch/internal/testkit/faketx"
)

// process is the simulated process of a desk.
type process struct {
	until atomic.Int64 // paused until then, in nanoseconds
	hurt  atomic.Bool  // it was killed or paused, so that what it held is free with its lease only
	ended chan struct{}
	once  sync.Once
}

func newProcess() *process { return &process{ended: make(chan struct{})} }

// pause stops it for d: it neither sends nor reads, and its handlers stand still. Its timers
// fire, which in a process that is really stopped they do when it goes on. No pause follows
// another at once: a request that waits for longer than keys are kept is placed once more.
func (p *process) pause(d time.Duration) {
	now := time.Now()
	if p.hurt.Store(true); p.until.Load() <= now.UnixNano() {
		p.until.Store(now.Add(d).UnixNano())
	}
}

// awake waits until it is not paused.
func (p *process) awake() {
	for {
		left := time.Until(time.Unix(0, p.until.Load()))
		if left <= 0 {
			return
		}
		time.Sleep(left)
	}
}

// kill ends the process. Its later writes have no effect.
func (p *process) kill() { p.once.Do(func() { close(p.ended) }) }

func (p *process) dead() bool {
	select {
	case <-p.ended:
		return true
	default:
		return false
	}
}

// desk takes orders.
type desk struct {
	day     *day
	name    string
	process *process
	guard   guard
	atWork  sync.WaitGroup
}

var errDead = errors.New("the process is gone")

// work is the handler: it looks for the order, works, and records the order. Two runs at once place
// it twice; the guard has to prevent this.
func (k *desk) work(ctx context.Context, q *request) error {
	if q.order.placed.Load() > 0 {
		q.done = true
		return nil
	}
	if err := k.toil(ctx, q); err != nil {
		return err
	}
	q.order.place(k.name)
	q.done = true
	return nil
}

// insert works, and records the order in the transaction of the guard. It does not look for the
// order first: two committed runs are two orders.
func (k *desk) insert(ctx context.Context, q *request) error {
	if err := k.toil(ctx, q); err != nil {
		return err
	}
	return faketx.Insert(ctx, q.order.id)
}

// toil takes the time of a handler.
func (k *desk) toil(ctx context.Context, q *request) error {
	q.order.letIn()
	time.Sleep(k.day.workTime())
	k.process.awake()
	if k.process.dead() {
		return errDead
	}
	return context.Cause(ctx)
}

// request is one of a customer's for an order, at a desk.
type request struct {
	desk  *desk
	order *order
	done  bool // the order is placed, by it or before
}

// customer has one key of a lock for all orders.
type customer struct {
	name string
	came time.Time

	mu   sync.Mutex
	live map[*desk]int // requests, of each desk that had one
	left time.Time     // when the last of them was done
}

func (c *customer) enter(k *desk) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.live == nil {
		c.live = make(map[*desk]int)
	}
	c.live[k]++
}

func (c *customer) leave(k *desk) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.live[k]--
	if !k.process.dead() {
		c.left = time.Now()
	}
}

// servedSince reports whether a living desk has a request of c, or had one at that time or
// later.
func (c *customer) servedSince(then time.Time) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	for k, n := range c.live {
		if n > 0 && !k.process.dead() {
			return true
		}
	}
	return !c.left.Before(then)
}

// spared reports whether each desk that had a request of c lives and was never paused.
func (c *customer) spared() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	for k := range c.live {
		if k.process.hurt.Load() {
			return false
		}
	}
	return true
}

// order is to be placed once.
type order struct {
	day      *day
	customer *customer
	id       string
	came     time.Time
	placed   atomic.Int32

	mu        sync.Mutex
	lockedOut time.Time     // since when, zero: it is not
	locked    time.Duration // out, until now
	refused   time.Duration // from the first to the last refusal for no reason, of one time locked out
	traced    []string
}

// lockOut notes that o was refused for no reason, and reports whether it was let in before.
func (o *order) lockOut() bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	if !o.lockedOut.IsZero() {
		o.refused = max(o.refused, time.Since(o.lockedOut))
		return false
	}
	o.lockedOut = time.Now()
	return true
}

// letIn notes that a handler has begun, or the customer has left. It returns for how long o was
// locked out in all, and for how long it was refused.
func (o *order) letIn() (locked, refused time.Duration) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if !o.lockedOut.IsZero() {
		o.locked += time.Since(o.lockedOut)
		o.lockedOut = time.Time{}
	}
	return o.locked, o.refused
}

// place writes o down, by a desk or the database.
func (o *order) place(by string) {
	o.trace(by, "placed")
	if n := o.placed.Add(1); n > 1 {
		o.day.found(o, "placed twice")
		if n == 2 {
			o.day.score(func(out *Outcome) {
				out.Doubled++
				if o.day.forgetful.Load() && o.came.UnixNano() < o.day.failed.Load() {
					out.Forgotten++
				}
			})
		}
	}
}

// trace notes what has happened to o.
func (o *order) trace(by, what string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if len(o.traced) < 100 {
		o.traced = append(o.traced, o.day.at()+" "+by+": "+what)
	}
}

// workTime is 20 to 400 ms as a rule, up to some seconds, and up to four leases where the day
// has such work.
func (d *day) workTime() time.Duration {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.Long > 0 && d.random.Float64() < d.Long {
		return time.Duration(d.random.Float64() * 4 * float64(d.TTL))
	}
	return workTime(d.random)
}

func workTime(r *rand.Rand) time.Duration {
	t := 20*time.Millisecond + time.Duration(r.ExpFloat64()*float64(80*time.Millisecond))
	if r.Float64() < 0.001 {
		t += time.Duration(r.Float64() * float64(4*time.Second))
	}
	return t
}
