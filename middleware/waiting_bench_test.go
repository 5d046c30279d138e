package middleware_test

import (
	"net/http"
	"runtime"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/httplatch/httplatch/lock"
	"github.com/httplatch/httplatch/lock/memstore"
)

// The memory of a repeat that waits: its goroutine, the request, and its place in the queue, and not
// the connection, which the server has for any request.
//
//	go test -run '^$' -bench WaitingRepeat -benchtime 1x ./middleware
func BenchmarkWaitingRepeat(b *testing.B) {
	const keys, repeats = 100, 10
	used := func() uint64 {
		runtime.GC()
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return m.HeapAlloc + m.StackInuse
	}
	for b.Loop() {
		l := newLocker(b, memstore.New(), lock.WithWait(time.Hour))
		answered := make(chan struct{})
		h := once(l)(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			<-answered
			created(w, r)
		}))
		var all sync.WaitGroup
		send := func(n int) {
			for i := range n {
				all.Go(func() { serve(h, keyed(strconv.Itoa(i%keys))) })
			}
		}
		waiting := func(held, waiters int) func() bool {
			return func() bool {
				holds, sum := l.Snapshot(keys, nil).Holds, 0
				for _, hold := range holds {
					sum += hold.Waiting
				}
				return len(holds) == held && sum == waiters
			}
		}
		send(keys)
		require.Eventually(b, waiting(keys, 0), time.Minute, time.Millisecond)
		before := used()
		send(keys * repeats)
		require.Eventually(b, waiting(keys, keys*repeats), time.Minute, time.Millisecond)
		b.ReportMetric(float64(used()-before)/(keys*repeats), "B/repeat")
		close(answered)
		all.Wait()
	}
}
