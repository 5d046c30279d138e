package suite

import (
	"context"
	"runtime"
	"sync/atomic"
	"time"

	"github.com/httplatch/httplatch/bench/internal/load"
	"github.com/httplatch/httplatch/bench/internal/peer"
)

// Crowd is the part in which there are far more callers than a server can answer
// at once: how many are served, how many of those that come at the same time to a
// contender that has no connections yet, and what one takes while it waits.
// Cases are CallersCase of Few and of Settings.Many, ColdBurst and Waiting.
const Crowd = "crowd"

// Few and Many are the numbers of callers that are compared, Many by default.
const (
	Few  = 256
	Many = 10_000
)

// ColdBurst is the case of callers that ask once, all at the same time.
func ColdBurst(callers int) string { return CallersCase(callers) + " at once, no connections yet" }

// Waiting is the case of callers that have no answer yet.
func Waiting(callers int) string { return CallersCase(callers) + " that wait" }

func measureCrowd(ctx context.Context, b *bench) error {
	srv, peers := b.server(), peer.All()
	sent, err := b.cycleCommands(ctx, srv, peers)
	if err != nil {
		return err
	}
	return b.fewRounds(ctx, len(peers), func(i int) error {
		p, sent := peers[i], sent[i]
		if err := srv.flush(ctx); err != nil {
			return err
		}
		err := b.use(ctx, p, srv.addr, func(l peer.Locker) error {
			if err := b.crowd(ctx, srv, p.Name, sent, l, Few, b.Window); err != nil {
				return err
			}
			return b.waiting(ctx, srv, p.Name, l)
		})
		if err != nil {
			return err
		}
		return b.use(ctx, p, srv.addr, func(l peer.Locker) error {
			if err := b.coldBurst(ctx, srv, p.Name, l); err != nil {
				return err
			}
			return b.crowd(ctx, srv, p.Name, sent, l, b.Many, 3*b.Window)
		})
	})
}

// crowd measures cycles of so many callers. Those that are refused ask again at
// once.
func (b *bench) crowd(ctx context.Context, srv *server, who string, sent commands, l peer.Locker, callers int, d time.Duration) error {
	kase := CallersCase(callers)
	r, err := b.steady(ctx, srv, kase, who, sent, callers, d/3, d, cycles(l, callers))
	if err != nil {
		return err
	}
	b.addTimes(kase, who, r)
	b.add(kase, who, NotServed, r.NotServed())
	return nil
}

func (b *bench) coldBurst(ctx context.Context, srv *server, who string, l peer.Locker) error {
	kase := ColdBurst(b.Many)
	r, err := b.charged(ctx, srv, kase, who, nil, func() (load.Result, error) {
		return load.Once(ctx, b.Many, cycles(l, b.Many))
	})
	if err != nil {
		return err
	}
	b.addTimes(kase, who, r)
	b.add(kase, who, NotServed, r.NotServed())
	return nil
}

// stillness is how long the server does not answer while memory is looked at: less
// than the default budget of a call. As many callers as wait have to come, and the
// garbage collector to run, within that time, on a busy machine too.
const stillness = 400 * time.Millisecond

// Waiters are how many callers wait then, of so many.
func Waiters(many int) int { return max(1, many/4) }

// waiting looks at the heap, at stacks and at goroutines while all callers wait
// for their answer. A caller's own goroutine is a part of what it takes.
func (b *bench) waiting(ctx context.Context, srv *server, who string, l peer.Locker) error {
	if err := srv.flush(ctx); err != nil {
		return err
	}
	n := Waiters(b.Many)
	runtime.GC()
	before := live()
	if err := srv.pause(ctx, stillness); err != nil {
		return err
	}
	var began, ended atomic.Int64
	op, all := cycles(l, n), make(chan error, 1)
	go func() {
		_, err := load.Once(ctx, n, func(ctx context.Context, caller, n int) error {
			began.Add(1)
			defer ended.Add(1)
			return op(ctx, caller, n)
		})
		all <- err
	}()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for began.Load() < int64(n) {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return <-all
		}
	}
	<-tick.C // for the last of them to get to where it waits
	during := live()
	if left := n - int(ended.Load()); left > n/2 {
		b.add(Waiting(n), who, WaitBytes, (during.bytes-before.bytes)/float64(left))
		b.add(Waiting(n), who, WaitRoutes, (during.goroutines-before.goroutines)/float64(left))
	} else {
		b.log("%s: only %d of %d callers wait while the server does not answer", who, left, n)
	}
	return <-all
}

// memory is what is reachable, and stacks.
type memory struct{ bytes, goroutines float64 }

func live() memory {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return memory{float64(m.HeapAlloc + m.StackInuse), float64(runtime.NumGoroutine())}
}
