package middleware_test

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"runtime"
	"runtime/metrics"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/httplatch/httplatch/lock"
	"github.com/httplatch/httplatch/lock/memstore"
)

// The tests in this file measure the heap, so they are not parallel: these run
// while none of the parallel ones does.

// largeAnswer answers with 1 MiB, the most that is kept unless set otherwise.
func largeAnswer(w http.ResponseWriter, _ *http.Request) {
	w.WriteHeader(http.StatusCreated)
	_, _ = w.Write(oneMiB)
}

var oneMiB = []byte(strings.Repeat("x", 1<<20))

// bulkClient is a client that reads its answer and keeps none of it.
type bulkClient struct {
	discard
	status, bytes int
	problem       string // the beginning of the body
}

func (c *bulkClient) WriteHeader(status int) { c.status = status }
func (c *bulkClient) Write(p []byte) (int, error) {
	if c.bytes == 0 {
		c.problem = string(p[:min(len(p), 500)])
	}
	c.bytes += len(p)
	return len(p), nil
}

func submitBulk(h http.Handler, user, key string) *bulkClient {
	r := httptest.NewRequest(http.MethodPost, "/orders", nil)
	r.Header.Set("X-User-ID", user)
	r.Header.Set("Idempotency-Key", key)
	w := &bulkClient{discard: discard{header: make(http.Header)}}
	h.ServeHTTP(w, r)
	return w
}

// heapBytes returns the size of the heap, garbage included.
func heapBytes() int64 {
	s := []metrics.Sample{{Name: "/memory/classes/heap/objects:bytes"}}
	metrics.Read(s)
	return int64(s[0].Value.Uint64())
}

func aliveBytes() int64 {
	runtime.GC()
	runtime.GC()
	return heapBytes()
}

// peakOf returns the most that is on the heap while do runs.
func peakOf(do func()) (peak int64) {
	stop, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		pause := time.NewTicker(200 * time.Microsecond)
		defer pause.Stop()
		for {
			peak = max(peak, heapBytes())
			select {
			case <-stop:
				return
			case <-pause.C:
			}
		}
	}()
	do()
	close(stop)
	<-done
	return peak
}

// TestHeapStaysBelowTwiceTheLimit fills a store with the longest answers that are
// kept: of one user, who must not fill it for the others, and of very many.
func TestHeapStaysBelowTwiceTheLimit(t *testing.T) {
	const (
		limit   = 64 << 20
		callers = 4
		sent    = 4 * limit >> 20
		rounds  = 2
		// Handlers in flight need additional memory: the answer in their buffer, and the copy that
		// the store makes of it. Their garbage during a collection needs memory, too, and a
		// collection takes long on a busy machine.
		inFlight = limit
	)
	for name, userOf := range map[string]func(i int) string{
		"one user":   func(int) string { return "42" },
		"many users": strconv.Itoa,
	} {
		t.Run(name, func(t *testing.T) {
			l := lock.New(memstore.New(memstore.WithLimits(1_000_000, limit)), lock.WithLogger(quiet))
			h := once(l)(http.HandlerFunc(largeAnswer))
			before := aliveBytes()
			peak, alive := int64(0), int64(0)
			for round := range rounds {
				peak = max(peak, peakOf(func() {
					var all sync.WaitGroup
					for c := range callers {
						all.Go(func() {
							for i := round*sent/rounds + c; i < (round+1)*sent/rounds; i += callers {
								if a := submitBulk(h, userOf(i), fmt.Sprint("k", i)); a.status != http.StatusCreated || a.bytes != 1<<20 {
									t.Errorf("request %d: %d with %d bytes, though it was let in", i, a.status, a.bytes)
								}
							}
						})
					}
					all.Wait()
				})-before)
				alive = max(alive, aliveBytes()-before)
			}
			t.Logf("limit %d MiB, peak %d MiB, alive %d MiB", limit>>20, peak>>20, alive>>20)
			require.LessOrEqual(t, alive, int64(limit))
			require.LessOrEqual(t, peak, int64(2*limit+inFlight))

			answer := submitBulk(h, "another", "k")
			require.Equal(t, http.StatusCreated, answer.status, "a user who has asked for nothing yet")

			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			require.NoError(t, l.Close(ctx), "nothing waits for room in the background")
			runtime.KeepAlive(l)
		})
	}
}
