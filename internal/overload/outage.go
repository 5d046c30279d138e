package overload

import (
	"context"
	"math"
	"sync"
	"sync/atomic"
	"time"

	"github.com/httplatch/httplatch/lock"
)

// Outage takes the server from Callers in a closed loop, For a time, and gives
// it back.
type Outage struct {
	Callers    int
	Before     time.Duration // with a healthy server
	For        time.Duration
	After      time.Duration // at most; less if everything is well again
	Begin, End func(ctx context.Context) error
	Addr       string // where a client finds the server
}

// Never stands for an event that did not happen during the wait for it.
const Never = time.Duration(math.MaxInt64)

// Recovery is the result of an [Outage]. Times count from the end of the outage.
type Recovery struct {
	Before float64 // cycles/s

	Answer      time.Duration // the first that a bare client got
	Grant       time.Duration // the first
	LastRefusal time.Duration // of a call that began when the server had answered the bare client; 0: none
	Empty       time.Duration // no clean-ups are left

	During, Since Failures // calls that failed during the outage, and that began after the first answer and failed
	Peak          Second   // Backlog, Goroutines, Heap
	Seconds       []Second // after the end
	Timers        Times    // how late they were, after the end
	CPU           CPU      // after the end
}

// calm is the time without a refusal after which Run ends its wait.
const calm = 3 * time.Second

// Run lets l, whose server is behind p, go through it.
func (o Outage) Run(ctx context.Context, l *lock.Locker, p *Proxy) (Recovery, error) {
	var r Recovery
	w := &wake{}
	many := &crowd{locker: l, counts: &counts{}, acquired: w.acquired}
	many.closed(ctx, "caller", o.Callers)
	defer many.end()
	watched := &seconds{locker: l, proxy: p, counts: many.counts}

	before := watched.watch(max(o.Before, time.Second))
	r.Before = float64(before[len(before)-1].Done)

	if err := o.Begin(ctx); err != nil {
		return r, err
	}
	r.Peak = Total(watched.watch(o.For))
	r.During = r.Peak.Failed

	w.ended.Store(new(time.Now()))
	if err := o.End(ctx); err != nil {
		return r, err
	}
	probing, cancel := context.WithTimeout(ctx, o.After)
	defer cancel()
	var probes sync.WaitGroup
	var emptied atomic.Bool
	probes.Go(func() {
		r.Answer = o.answer(probing, *w.ended.Load())
		if r.Answer != Never {
			w.answered.Store(new(time.Now()))
		}
	})
	probes.Go(func() {
		r.Empty = empty(probing, l, *w.ended.Load())
		emptied.Store(true)
	})
	o.watch(&r, w, watched, &emptied)
	cancel()
	probes.Wait()
	r.Grant, r.LastRefusal, r.Since = w.outcome()
	after := Total(r.Seconds)
	r.Peak.Backlog = max(r.Peak.Backlog, after.Backlog)
	r.Peak.Goroutines = max(r.Peak.Goroutines, after.Goroutines)
	r.Peak.Heap = max(r.Peak.Heap, after.Heap)
	return r, nil
}

// watch fills in the seconds after the outage, until everything is well again.
func (o Outage) watch(r *Recovery, w *wake, watched *seconds, emptied *atomic.Bool) {
	watched.start()
	used := readUsage()
	var timers histogram
	over := watchTimers(&timers)
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	for time.Since(*w.ended.Load()) < o.After {
		<-tick.C
		r.Seconds = append(r.Seconds, watched.next())
		if emptied.Load() && w.granted.Load() != 0 && len(r.Seconds) > 3 && w.quiet(calm) {
			break
		}
	}
	over()
	r.Timers = timers.times()
	r.CPU = readUsage().since(used)
}

// wake notes the observations of callers after an outage.
type wake struct {
	ended, answered atomic.Pointer[time.Time]
	granted         atomic.Int64 // the first, in nanoseconds after the end
	refused         atomic.Int64 // the last of a call that began after the first answer
	failed          [kinds]atomic.Int64
}

func (w *wake) acquired(began, now time.Time, err error) {
	ended := w.ended.Load()
	if ended == nil {
		return
	}
	after := int64(now.Sub(*ended))
	if err == nil {
		w.granted.CompareAndSwap(0, after)
		return
	}
	if answered := w.answered.Load(); answered == nil || began.Before(*answered) {
		return // it was under way when the server was not there
	}
	kind := kindOf(err)
	w.failed[kind].Add(1)
	if kind == Held {
		return
	}
	for {
		last := w.refused.Load()
		if after <= last || w.refused.CompareAndSwap(last, after) {
			return
		}
	}
}

// quiet reports whether nothing was refused for d.
func (w *wake) quiet(d time.Duration) bool {
	return w.answered.Load() != nil && time.Since(*w.ended.Load())-time.Duration(w.refused.Load()) > d
}

func (w *wake) outcome() (grant, refusal time.Duration, failed Failures) {
	grant = time.Duration(w.granted.Load())
	if grant == 0 {
		grant = Never
	}
	for k := range failed {
		failed[k] = w.failed[k].Load()
	}
	return grant, time.Duration(w.refused.Load()), failed
}
