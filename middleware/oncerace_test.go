package middleware_test

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/httplatch/httplatch/internal/testkit/redistest"
	"github.com/httplatch/httplatch/lock"
	"github.com/httplatch/httplatch/lock/memstore"
)

// redisStore is on a real server that all tests share, under its own keys.
func redisStore(t *testing.T) lock.Store {
	t.Helper()
	return openRedis(t, redistest.Shared(t).URL())
}

// TestRace sends one request 200 times at once, to one Locker or to two that
// know nothing of each other but the store.
func TestRace(t *testing.T) {
	t.Parallel()
	for storeName, open := range map[string]func(t *testing.T) lock.Store{
		"memory": func(*testing.T) lock.Store { return memstore.New() },
		"redis":  redisStore,
	} {
		for lockers := 1; lockers <= 2; lockers++ {
			for _, wait := range []time.Duration{0, 20 * time.Second} {
				t.Run(fmt.Sprintf("%s lockers=%d wait=%v", storeName, lockers, wait), func(t *testing.T) {
					t.Parallel()
					store := open(t)
					var e effects
					var handlers []http.Handler
					for range lockers {
						l := newLocker(t, store, lock.WithBudget(5*time.Second), lock.WithWait(wait))
						handlers = append(handlers, once(l)(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
							time.Sleep(50 * time.Millisecond)
							e.answer(w, r)
						})))
					}
					counts := make(map[string]int)
					for _, w := range storm(200, func(i int) *httptest.ResponseRecorder { return serve(handlers[i%lockers], keyed("k")) }) {
						outcome := fmt.Sprintf("%d %s", w.Code, w.Header().Get("Idempotent-Replayed"))
						counts[outcome]++
						switch w.Code {
						case 201:
							require.Equal(t, "order 1", w.Body.String())
						default:
							requireProblem(t, wantProblem{status: 409, kind: "in-progress", retryAfter: "1"}, w)
						}
					}
					e.require(t, 1)
					require.Equal(t, 1, counts["201 "], "one of them is the first")
					if wait > 0 {
						// One runs and 64 wait in a process; the others are refused, as too many.
						require.GreaterOrEqual(t, counts["201 true"], 64)
					}
					require.Equal(t, 200, counts["201 "]+counts["201 true"]+counts["409 "])
				})
			}
		}
	}
}

// TestRaceIsSeen is the twin of TestRace: a guard that looks first and claims
// then is caught.
func TestRaceIsSeen(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var e effects
		var taken atomic.Bool
		storm(200, func(int) *httptest.ResponseRecorder {
			if !taken.Load() {
				time.Sleep(time.Millisecond) // a round trip
				taken.Store(true)
				e.n.Add(1)
			}
			return nil
		})
		require.Greater(t, e.n.Load(), int64(1))
	})
}

// storm calls f n times at once.
func storm(n int, f func(i int) *httptest.ResponseRecorder) []*httptest.ResponseRecorder {
	answers := make([]*httptest.ResponseRecorder, n)
	start := make(chan struct{})
	var wg sync.WaitGroup
	for i := range n {
		wg.Go(func() {
			<-start
			answers[i] = f(i)
		})
	}
	close(start)
	wg.Wait()
	return answers
}

// TestDoubleClick does as a browser: the second click gives up the first request while the
// handler runs, and sends another.
func TestDoubleClick(t *testing.T) {
	t.Parallel()
	for _, wait := range []bool{false, true} {
		t.Run(fmt.Sprintf("wait=%v", wait), func(t *testing.T) {
			t.Parallel()
			var e effects
			l := newLocker(t, memstore.New())
			if !wait {
				l = l.With(lock.WithWait(0))
			}
			arrived, work := make(chan struct{}), make(chan struct{})
			server := startServer(t, once(l)(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				close(arrived)
				<-work
				require.NoError(t, r.Context().Err(), "the work is not given up")
				e.answer(w, r)
			})))
			ctx, abort := newCancel(t)
			first := clientRequest(t, server.URL, "k").WithContext(ctx)
			aborted := make(chan error)
			go func() {
				res, err := server.Client().Do(first)
				if err == nil {
					_ = res.Body.Close()
				}
				aborted <- err
			}()
			<-arrived
			abort()
			require.ErrorIs(t, <-aborted, context.Canceled)
			if wait {
				time.AfterFunc(50*time.Millisecond, func() { close(work) })
			}
			got := over(t.Context(), t, server, keyed("k"))
			if !wait {
				require.Equal(t, 409, got.status)
				close(work)
				require.Eventually(t, func() bool {
					got = over(t.Context(), t, server, keyed("k"))
					return got.status != 409
				}, 10*time.Second, 10*time.Millisecond)
			}
			require.Equal(t, 201, got.status)
			require.Equal(t, "order 1", string(got.body))
			require.Equal(t, "true", got.header.Get("Idempotent-Replayed"))
			e.require(t, 1)
		})
	}
}

// TestWaiterLeavesWithItsClient, without an effect.
func TestWaiterLeavesWithItsClient(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		l := lock.New(memstore.New(), lock.WithWait(time.Hour))
		t.Cleanup(func() { end(l) })
		h := once(l)(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { time.Sleep(time.Minute) }))
		done := make(chan struct{})
		go func() {
			serve(h, keyed("k"))
			close(done)
		}()
		synctest.Wait()
		ctx, leave := newCancel(t)
		began := time.Now()
		time.AfterFunc(time.Second, leave)
		serve(once(l)(mustNotRun(t)), keyed("k").WithContext(ctx))
		require.Equal(t, time.Second, time.Since(began))
		<-done
	})
}
