package day

import (
	"cmp"
	"context"
	"fmt"
	"time"
)

// customer orders, comes back until the order is placed, and orders once more at times.
func (d *day) customer(n int) {
	c := &customer{name: fmt.Sprint("c", n), came: time.Now()}
	d.order(&order{day: d, customer: c, id: c.name, came: c.came})
	if d.Again > 0 && d.chance(d.Again) {
		time.Sleep(d.between(10*time.Second, 2*time.Minute))
		d.order(&order{day: d, customer: c, id: c.name + " again", came: time.Now()})
	}
}

// order has a customer come back until o is placed.
func (d *day) order(o *order) {
	d.waiting.Store(o.id, o)
	defer time.AfterFunc(2*longestLate, func() { d.waiting.Delete(o.id) }) // a commit may land after the customer has left
	if d.chance(d.Twice) {                                                 // the page shows the answer to the second of them
		first := make(chan struct{})
		go func() {
			defer close(first)
			d.post(o)
		}()
		defer func() { <-first }()
		time.Sleep(d.between(30*time.Millisecond, 600*time.Millisecond))
	}
	began := time.Now()
	wait, called := first, false
	for {
		alone := !o.customer.servedSince(time.Now().Add(-grace))
		a := d.post(o)
		o.trace("customer", "sees "+a.String())
		if a == placed {
			break
		}
		if a == refused && alone && o.lockOut() {
			d.found(o, "refused, and no other request was there")
		}
		if time.Since(began) > givesUp {
			d.score(func(out *Outcome) { out.Lost++ })
			break
		}
		if wait >= longest && !called {
			called = true
			d.score(func(out *Outcome) { out.Calls++ })
		}
		time.Sleep(wait)
		wait = min(2*wait, cmp.Or(d.Wait, longest))
	}
	locked, refused := o.letIn()
	d.score(func(out *Outcome) {
		if locked > 0 {
			out.LockedOut++
			out.Minutes += locked.Minutes()
			out.Longest = max(out.Longest, locked)
			out.Refused = max(out.Refused, refused)
			if o.customer.spared() && o.customer.came.UnixNano() > d.failed.Load() {
				out.Stuck = max(out.Stuck, locked)
			}
		}
	})
}

// post sends o to a desk, and returns what its customer sees of the answer.
func (d *day) post(o *order) answer {
	k := d.pick()
	if k == nil {
		return failed
	}
	o.trace(k.name, "is asked")
	k.atWork.Add(1)
	ctx, cancel := context.WithTimeout(d.ctx, clientWait)
	answered := make(chan answer, 1)
	go func() {
		defer k.atWork.Done()
		k.process.awake()
		q := &request{desk: k, order: o}
		o.customer.enter(k)
		a := k.guard.serve(ctx, q)
		o.customer.leave(k)
		k.process.awake()
		if !k.process.dead() {
			d.check(q, a)
			answered <- a
		}
	}()
	defer cancel()
	select {
	case a := <-answered:
		if d.chance(unheard) {
			<-ctx.Done()
			return silent
		}
		return a
	case <-ctx.Done():
		return silent
	case <-k.process.ended:
		return failed
	}
}

// check compares an answer with what was done.
func (d *day) check(q *request, a answer) {
	o := q.order
	o.trace(q.desk.name, "answers "+a.String())
	switch {
	case a == placed && o.placed.Load() == 0:
		d.found(o, `was told "placed", and is not`)
		d.score(func(out *Outcome) { out.FalsePlaced++ })
	case a == failed && q.done:
		d.found(o, `was told "not placed", and is`)
		d.score(func(out *Outcome) { out.FalseFailed++ })
	}
}
