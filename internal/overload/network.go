package overload

import (
	"context"
	"time"

	"github.com/httplatch/httplatch/lock"
)

// Network is a steady load over a network that changes. Arrivals do not wait for each other, and
// pass through one phase after the other.
type Network struct {
	PerSecond float64
	Phases    []Phase
}

// Phase is a network for whole seconds. Round trips take From longer at its beginning
// and To at its end, and Lost is the share of packets that get lost.
type Phase struct {
	Name     string
	For      time.Duration
	From, To time.Duration
	Lost     float64
}

// Passed is the result of the arrivals of a phase.
type Passed struct {
	Second // all of it

	Served, Refused Times // of Acquire, since the call was due
}

// Run goes through the phases, with l, whose server is behind p.
func (n Network) Run(ctx context.Context, l *lock.Locker, p *Proxy) (passed []Passed) {
	var late histogram
	var crowds []*crowd
	for _, phase := range n.Phases {
		p.Lose(phase.Lost)
		p.Far(phase.From)
		c := &crowd{locker: l, counts: &counts{}}
		crowds = append(crowds, c)
		c.open(ctx, n.PerSecond, &late)
		drifted := phase.drift(p)
		watched := &seconds{locker: l, proxy: p, counts: c.counts}
		passed = append(passed, Passed{Second: Total(watched.watch(phase.For))})
		drifted()
		c.over.Store(true)
	}
	for i, c := range crowds {
		c.end()
		passed[i].Served, passed[i].Refused = c.counts.served.times(), c.counts.refused.times()
	}
	return passed
}

// drift changes the round trips of p step by step, until stop has returned.
func (f Phase) drift(p *Proxy) (stop func()) {
	const step = 50 * time.Millisecond
	done, ended := make(chan struct{}), make(chan struct{})
	began := time.Now()
	go func() {
		defer close(ended)
		tick := time.NewTicker(step)
		defer tick.Stop()
		for f.From != f.To {
			select {
			case <-done:
				return
			case <-tick.C:
				part := min(1, float64(time.Since(began))/float64(f.For))
				p.Far(f.From + time.Duration(part*float64(f.To-f.From)))
			}
		}
	}()
	return func() {
		close(done)
		<-ended
	}
}
