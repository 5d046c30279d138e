package redisstore_test

import (
	"context"
	"flag"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/httplatch/httplatch/internal/testkit/redistest"
	"github.com/httplatch/httplatch/lock"
	"github.com/httplatch/httplatch/lock/memstore"
)

var stormLasts = flag.Duration("storm", 5*time.Second, "how long callers come in BenchmarkStorm")

// inOrder is a store that claims no set at once.
type inOrder struct{ lock.Store }

// BenchmarkSet is one caller with a set of five keys, claimed in one call, and in order, compared
// with one lock.
func BenchmarkSet(b *testing.B) {
	nothing := func(context.Context) error { return nil }
	for name, store := range map[string]lock.Store{
		"store=redis":  open(b, redistest.Shared(b).URL()),
		"store=memory": memstore.New(),
	} {
		for how, s := range map[string]lock.Store{"at_once": store, "in_order": inOrder{store}} {
			b.Run(name+"/how="+how, func(b *testing.B) {
				l := benchLocker(b, s)
				keys := fiveKeys("bench")
				b.ReportAllocs()
				for b.Loop() {
					require.NoError(b, l.DoAll(b.Context(), keys, nothing))
				}
			})
		}
		b.Run(name+"/how=one_lock", func(b *testing.B) {
			l := benchLocker(b, store)
			b.ReportAllocs()
			for b.Loop() {
				require.NoError(b, l.Do(b.Context(), "bench", nothing))
			}
		})
	}
}

// BenchmarkStorm is a crowd in three processes whose work takes 5 ms: 200 callers with five of
// twenty keys each, compared with one lock over everything, and 5,000 callers for three permits. It
// reports how many were granted in a second, and the longest time without a grant.
func BenchmarkStorm(b *testing.B) {
	url := redistest.Shared(b).URL()
	five := func(ctx context.Context, l *lock.Locker, fn func(context.Context) error) error {
		keys := make([]string, 0, 5)
		for _, n := range rand.Perm(20)[:5] {
			keys = append(keys, lock.Key("item", fmt.Sprint(n)))
		}
		return l.DoAll(ctx, keys, fn)
	}
	everything := func(ctx context.Context, l *lock.Locker, fn func(context.Context) error) error {
		return l.Do(ctx, "all items", fn)
	}
	permit := func(ctx context.Context, l *lock.Locker, fn func(context.Context) error) error {
		return l.DoAny(ctx, lock.Slots("export", 3), func(ctx context.Context, _ string) error { return fn(ctx) })
	}
	for _, bb := range []struct {
		name    string
		callers int
		most    int64 // holders at the same time
		hide    bool
		wait    time.Duration
		do      func(ctx context.Context, l *lock.Locker, fn func(context.Context) error) error
	}{
		{"sets/at_once", 200, 4, false, 0, five},
		{"sets/in_order", 200, 4, true, 0, five},
		{"sets/at_once,waiting", 200, 4, false, 4 * time.Second, five},
		{"sets/in_order,waiting", 200, 4, true, 4 * time.Second, five},
		{"one_lock", 200, 1, false, 0, everything},
		{"one_lock,waiting", 200, 1, false, 4 * time.Second, everything},
		{"permits", 5000, 3, false, 0, permit},
		{"permits,waiting", 5000, 3, false, 4 * time.Second, permit},
	} {
		b.Run(bb.name, func(b *testing.B) {
			var lockers []*lock.Locker
			for range 3 {
				s := lock.Store(open(b, url))
				if bb.hide {
					s = inOrder{s}
				}
				opts := []lock.Option{}
				if bb.wait > 0 {
					opts = append(opts, lock.WithWait(bb.wait))
				}
				lockers = append(lockers, benchLocker(b, s, opts...))
			}
			for b.Loop() {
				granted, gap := storm(b, lockers, bb.callers, bb.most, *stormLasts, bb.do)
				b.ReportMetric(float64(granted)/stormLasts.Seconds(), "granted/s")
				b.ReportMetric(float64(gap.Milliseconds()), "ms-without")
			}
		})
	}
}

func benchLocker(b *testing.B, s lock.Store, opts ...lock.Option) *lock.Locker {
	b.Helper()
	l := lock.New(s, append([]lock.Option{lock.WithLogger(slog.New(slog.DiscardHandler))}, opts...)...)
	b.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(b.Context()), 10*time.Second)
		defer cancel()
		_ = l.Close(ctx)
	})
	return l
}

// storm returns how many callers were granted, and the longest time without a grant.
func storm(b *testing.B, lockers []*lock.Locker, callers int, most int64, lasts time.Duration,
	do func(ctx context.Context, l *lock.Locker, fn func(context.Context) error) error,
) (granted int, gap time.Duration) {
	b.Helper()
	var mu sync.Mutex
	var holders atomic.Int64
	last := time.Now()
	end := last.Add(lasts)
	var all sync.WaitGroup
	for i := range callers {
		all.Go(func() {
			for time.Now().Before(end) {
				err := do(b.Context(), lockers[i%len(lockers)], func(context.Context) error {
					if now := holders.Add(1); now > most {
						b.Errorf("%d holders of %d", now, most)
					}
					mu.Lock()
					granted++
					gap, last = max(gap, time.Since(last)), time.Now()
					mu.Unlock()
					time.Sleep(5 * time.Millisecond)
					holders.Add(-1)
					return nil
				})
				if err != nil {
					time.Sleep(rand.N(time.Duration(callers) * 100 * time.Microsecond))
				}
			}
		})
	}
	all.Wait()
	return granted, gap
}
