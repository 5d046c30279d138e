package suite

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"time"

	"github.com/httplatch/httplatch/bench/internal/load"
	"github.com/httplatch/httplatch/bench/internal/peer"
	"github.com/httplatch/httplatch/lock"
	"github.com/httplatch/httplatch/lock/redisstore"
)

// Growth is the part that shows what a cycle costs while so many other keys are
// live, and what they take.
const Growth = "growth"

// Contenders of Growth.
const (
	MemoryStore = "memory store"
	RedisStore  = "Redis store"
)

// KeysCase names the case.
func KeysCase(n int) string { return fmt.Sprintf("%d live keys", n) }

const growthCallers = 8

func liveKey(i int) string { return fmt.Sprintf("live=%d", i) }

// fill claims n keys for an hour, with a token and an owner as long as those of
// a Locker, and returns how long the keys are together.
func fill(ctx context.Context, s lock.Store, callers, n int) (length int, err error) {
	_, err = load.Times(ctx, callers, n, func(ctx context.Context, caller, i int) error {
		key := liveKey(i*callers + caller)
		e, err := s.Claim(ctx, key, lock.Claim{
			Token: fmt.Sprintf("AAAAAAAAAAAAAAAAAAAAAA.%07d.AAAAAAAAAAA", i), Attempt: 1, Owner: "a-host-name:12345", Lease: time.Hour,
		})
		if err == nil && e.State != lock.Held {
			err = fmt.Errorf("%s was not claimed", key)
		}
		return err
	})
	for i := range n {
		length += len(liveKey(i))
	}
	return length, err
}

func measureGrowth(ctx context.Context, b *bench) (err error) {
	var grown []grownStore
	defer func() {
		for _, g := range grown {
			err = errors.Join(err, g.close())
		}
	}()
	for _, n := range b.Keys {
		b.log("filling with %d keys", n)
		for _, grow := range []func(context.Context, int) (grownStore, error){b.growMemory, b.growRedis} {
			g, err := grow(ctx, n)
			if err != nil {
				return err
			}
			grown = append(grown, g)
		}
	}
	return b.fewRounds(ctx, len(grown), func(i int) error {
		g := grown[i]
		rate, err := g.measure()
		if err != nil {
			return err
		}
		b.add(KeysCase(g.keys), g.who, Rate, rate)
		return nil
	})
}

// grownStore is a store with keys in it.
type grownStore struct {
	who     string
	keys    int
	measure func() (rate float64, err error)
	close   func() error
}

// growMemory fills an embedded store, in a separate process: what its garbage
// collector has to look at is a part of what it costs.
func (b *bench) growMemory(ctx context.Context, n int) (grownStore, error) {
	c, err := hire(ctx, 1, job{Kind: jobMemory, Keys: n, Window: b.Window})
	if err != nil {
		return grownStore{}, err
	}
	b.add(KeysCase(n), MemoryStore, Beside, c.members[0].ready.Bytes)
	return grownStore{MemoryStore, n, func() (float64, error) {
		reports, err := c.run()
		return reports[0].Rate, err
	}, c.dismiss}, nil
}

// memoryWorker is the other end of growMemory.
func memoryWorker(ctx context.Context, j job) (worker, error) {
	before := heap()
	s := peer.NewMemory(2*j.Keys + 100_000)
	length, err := fill(ctx, s, 1, j.Keys)
	if err != nil {
		return worker{}, err
	}
	bytes := float64(heap()-before-int64(length)) / float64(j.Keys)
	l, key := peer.NewLocker(s), keys(growthCallers)
	cycle := func(ctx context.Context, caller, n int) error {
		lease, err := l.Acquire(ctx, key(caller, n))
		if err != nil {
			return err
		}
		return lease.Release(ctx)
	}
	return worker{
		ready: report{Bytes: bytes},
		measure: func(ctx context.Context) (report, error) {
			runtime.GC()
			b := &bench{Settings: Settings{Window: j.Window}}
			r, err := b.closed(ctx, growthCallers, cycle)
			return report{Rate: r.Rate()}, err
		},
		close: func() error { return l.Close(context.WithoutCancel(ctx)) },
	}, nil
}

func heap() int64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc) //nolint:gosec // no heap is that large
}

// growRedis fills a separate Redis server.
func (b *bench) growRedis(ctx context.Context, n int) (grownStore, error) {
	srv := b.server()
	client := peer.NewClient(peer.Target{Addr: srv.addr, Pool: b.Pool})
	defer func() { _ = client.Close() }()
	before, err := srv.memory(ctx)
	if err != nil {
		return grownStore{}, err
	}
	length, err := fill(ctx, redisstore.New(client), 64, n)
	if err != nil {
		return grownStore{}, err
	}
	after, err := srv.memory(ctx)
	if err != nil {
		return grownStore{}, err
	}
	b.add(KeysCase(n), RedisStore, Beside, (after-before-float64(length))/float64(n))
	ours, _ := peer.Named(peer.Ours)
	return grownStore{RedisStore, n, func() (rate float64, err error) {
		err = b.use(ctx, ours, srv.addr, func(l peer.Locker) error {
			op := cycles(l, growthCallers)
			if _, err := load.Closed(ctx, growthCallers, b.Window/5, op); err != nil {
				return err
			}
			r, err := b.charged(ctx, srv, KeysCase(n), RedisStore, nil, func() (load.Result, error) {
				return load.Closed(ctx, growthCallers, b.Window, op)
			})
			rate = r.Rate()
			return err
		})
		return rate, err
	}, func() error { return nil }}, nil
}
