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

// process is what a desk runs in.
type process struct {
	until atomic.Int64 // paused until then, in nanoseconds
	ended chan struct{}
	once  sync.Once
}

func newProcess() *process { return &process{ended: make(chan struct{})} }

// pause stops it for d: it neither sends nor reads, and its handlers stand still. Its timers
// fire, which in a process that is really stopped they do when it goes on.
func (p *process) pause(d time.Duration) { p.until.Store(time.Now().Add(d).UnixNano()) }

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

// kill ends it: nothing that it does has an effect any more.
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

// work is what the handler does: it looks whether there is such an order, does what there is to
// do, and writes it down. Two at once place it twice, which is what the guard is for.
func (k *desk) work(ctx context.Context, q *request) error {
	if q.order.placed.Load() > 0 {
		q.done = true
		return nil
	}
	if err := k.toil(ctx); err != nil {
		return err
	}
	q.order.place(k.name)
	q.done = true
	return nil
}

// insert does what there is to do, and writes the order down in the transaction of the guard. It
// does not look for it: two that are committed are two orders.
func (k *desk) insert(ctx context.Context, q *request) error {
	if err := k.toil(ctx); err != nil {
		return err
	}
	return faketx.Insert(ctx, q.order.customer)
}

// toil takes the time of a handler.
func (k *desk) toil(ctx context.Context) error {
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

// order is what a customer wants once.
type order struct {
	day      *day
	customer string
	placed   atomic.Int32

	mu     sync.Mutex
	live   map[*desk]int // requests for it
	left   time.Time     // when the last of them was done
	traced []string
}

func (o *order) enter(k *desk) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.live == nil {
		o.live = make(map[*desk]int)
	}
	o.live[k]++
}

func (o *order) leave(k *desk) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.live[k]--
	if !k.process.dead() {
		o.left = time.Now()
	}
}

// place writes o down, by a desk or the database.
func (o *order) place(by string) {
	o.trace(by, "placed")
	if n := o.placed.Add(1); n > 1 {
		o.day.found(o, "placed twice")
		if n == 2 {
			o.day.score(func(out *Outcome) { out.Doubled++ })
		}
	}
}

// servedSince reports whether a living desk has a request for it, or had one at that time or
// later.
func (o *order) servedSince(then time.Time) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	for k, n := range o.live {
		if n > 0 && !k.process.dead() {
			return true
		}
	}
	return !o.left.Before(then)
}

// trace notes what has happened to o.
func (o *order) trace(by, what string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if len(o.traced) < 100 {
		o.traced = append(o.traced, o.day.at()+" "+by+": "+what)
	}
}

// workTime is 20 to 400 ms as a rule, and up to some seconds.
func (d *day) workTime() time.Duration {
	d.mu.Lock()
	defer d.mu.Unlock()
	return workTime(d.random)
}

func workTime(r *rand.Rand) time.Duration {
	t := 20*time.Millisecond + time.Duration(r.ExpFloat64()*float64(80*time.Millisecond))
	if r.Float64() < 0.001 {
		t += time.Duration(r.Float64() * float64(4*time.Second))
	}
	return t
}
