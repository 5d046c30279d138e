package overload

import (
	"runtime"
	"runtime/metrics"
	"time"

	"github.com/httplatch/httplatch/lock"
)

// Second has the events of one second, and the state at its end.
type Second struct {
	Done     int64 // cycles
	Commands int64 // that the proxy has taken
	Failed   Failures

	Backlog    int // lock.Stats
	Goroutines int // of this process, those of callers and of the proxy among them
	Heap       uint64
}

// seconds looks once a second.
type seconds struct {
	locker *lock.Locker
	proxy  *Proxy
	counts *counts

	last Second // what was counted until then
}

func (s *seconds) start() { s.last = s.totals() }

func (s *seconds) totals() Second {
	return Second{Done: s.counts.done.Load(), Commands: s.proxy.Commands(), Failed: s.counts.failures()}
}

// watch returns what happened in each second of d.
func (s *seconds) watch(d time.Duration) (all []Second) {
	s.start()
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	for range d / time.Second {
		<-tick.C
		all = append(all, s.next())
	}
	return all
}

func (s *seconds) next() Second {
	now := s.totals()
	second := Second{
		Done:       now.Done - s.last.Done,
		Commands:   now.Commands - s.last.Commands,
		Failed:     now.Failed.minus(s.last.Failed),
		Backlog:    s.locker.Stats().Backlog,
		Goroutines: runtime.NumGoroutine(),
		Heap:       heap(),
	}
	s.last = now
	return second
}

// heap returns the memory of all objects, including dead ones that are not collected yet.
func heap() uint64 {
	sample := []metrics.Sample{{Name: "/memory/classes/heap/objects:bytes"}}
	metrics.Read(sample)
	return sample[0].Value.Uint64()
}

// Done are the cycles of each.
func Done(seconds []Second) (done []int64) {
	for _, s := range seconds {
		done = append(done, s.Done)
	}
	return done
}
