package middleware_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/httplatch/httplatch/internal/testkit/must"
	"github.com/httplatch/httplatch/internal/testkit/parallel"
	"github.com/httplatch/httplatch/internal/testkit/testmain"
	"github.com/httplatch/httplatch/lock"
	"github.com/httplatch/httplatch/lock/memstore"
	latch "github.com/httplatch/httplatch/middleware"
)

func events(n int) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream")
		for i := range n {
			if _, err := fmt.Fprintf(w, "id: %d\ndata: %d\n\n", i, i); err != nil {
				return
			}
			if http.NewResponseController(w).Flush() != nil || r.Context().Err() != nil {
				return
			}
		}
	}
}

func eventsText(n int) string {
	var all strings.Builder
	for i := range n {
		_, _ = fmt.Fprintf(&all, "id: %d\ndata: %d\n\n", i, i)
	}
	return all.String()
}

// TestStreamsAreReplayed: a repeat gets the status, the headers and the bytes of the stream.
func TestStreamsAreReplayed(t *testing.T) {
	t.Parallel()
	for name, answer := range map[string]http.HandlerFunc{
		"events":                      events(3),
		"flushed by assertion, empty": func(w http.ResponseWriter, _ *http.Request) { w.(http.Flusher).Flush() },
		"a type by its first bytes":   acts(write("<html>"), flush, write("</html>")),
		"a type that comes too late":  acts(flush, header("Content-Type", "text/css"), write("<html>")),
		"no body allowed": acts(status(http.StatusNoContent), flush, func(w http.ResponseWriter) {
			if _, err := io.WriteString(w, "x"); !errors.Is(err, http.ErrBodyNotAllowed) {
				panic(err)
			}
		}),
		"created":            acts(header("Location", "/orders/7"), header("X-Accel-Buffering", "no"), status(201), flush, write("a"), flush, write("b")),
		"as long as allowed": acts(flush, write(strings.Repeat("x", 99)), write("x")),
	} {
		parallel.Run(t, name, func(t *testing.T) {
			for _, http2 := range []bool{false, true} {
				var e effects
				server := startServerOf(t, once(newLocker(t, memstore.New(), patient), latch.WithBodyLimits(100, 100))(e.then(answer)), http2)
				var got [2]exchange
				for i := range got {
					got[i] = exchanged(t, server, clientRequest(t, server.URL, "k"))
					require.Equal(t, i > 0, got[i].header.Get("Idempotent-Replayed") == "true")
					got[i].header.Del("Idempotent-Replayed")
				}
				require.Equal(t, got[0], got[1])
				e.require(t, 1)
			}
		})
	}
}

// heldFirst sees whether a part of a stream leaves before the store has confirmed its key.
type heldFirst struct {
	lock.Store
	renewed atomic.Bool
}

func (s *heldFirst) Renew(ctx context.Context, key string, c lock.Claim) (bool, error) {
	s.renewed.Store(true)
	return s.Store.Renew(ctx, key, c)
}

// With WithRerunAbandoned, a crash after the first byte must not free the key. So the store knows before.
func TestStreamsLeaveAfterTheirKeyIsHeld(t *testing.T) {
	t.Parallel()
	for _, opts := range [][]lock.Option{{patient}, {patient, lock.WithRerunAbandoned()}} {
		store := &heldFirst{Store: memstore.New()}
		h := once(newLocker(t, store, opts...))(acts(write("a"), flush))
		w := httptest.NewRecorder()
		h.ServeHTTP(writerFunc{w, func() { require.True(t, store.renewed.Load()) }}, keyed("k"))
		require.Equal(t, "a", w.Body.String())
	}
}

// writerFunc calls sends before anything of the final answer is sent.
type writerFunc struct {
	http.ResponseWriter
	sends func()
}

func (w writerFunc) WriteHeader(status int) {
	if status >= 200 || status == http.StatusSwitchingProtocols { // httptest takes an informational one for the last
		w.sends()
		w.ResponseWriter.WriteHeader(status)
	}
}

func (w writerFunc) Write(p []byte) (int, error) { w.sends(); return w.ResponseWriter.Write(p) }
func (w writerFunc) Flush()                      { w.sends(); flush(w.ResponseWriter) }

// TestBrokenStreams breaks a stream off at each of 200 events. Each repeat gets all of them, from one run of the handler.
func TestBrokenStreams(t *testing.T) {
	t.Parallel()
	const all = 200
	var e effects
	server := startServer(t, once(newLocker(t, memstore.New(), patient, lock.WithWait(time.Minute)))(e.then(events(all))))
	for broken := range all {
		key := fmt.Sprint("k", broken)
		func() {
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			res, err := server.Client().Do(clientRequest(t, server.URL, key).WithContext(ctx))
			require.NoError(t, err)
			lines := bufio.NewReader(res.Body)
			for range 3 * broken {
				must.Get(lines.ReadString('\n'))(t)
			}
			cancel()
			_ = res.Body.Close()
		}()
		again := exchanged(t, server, clientRequest(t, server.URL, key))
		require.Equal(t, 200, again.status, "broken off after %d events", broken)
		require.Equal(t, eventsText(all), string(again.body), "broken off after %d events", broken)
		require.Equal(t, "text/event-stream", again.header.Get("Content-Type"))
	}
	e.require(t, all)
}

// TestStreamsThatAreNotKept: a repeat is refused, and the first client has got all that was sent. A stream that ends in a
// panic is a row of docs/evidence/semantics.md.
func TestStreamsThatAreNotKept(t *testing.T) {
	t.Parallel()
	for name, answer := range map[string]http.HandlerFunc{
		"longer than the limit":               acts(flush, write(strings.Repeat("x", 100)), write("x")),
		"longer than its limit at once":       acts(write("x"), flush, write(strings.Repeat("x", 100))),
		"longer than the limit by its length": acts(header("Content-Length", "101"), flush, write(strings.Repeat("x", 101))),
		"trailers":                            acts(write("x"), flush, header(http.TrailerPrefix+"X-Sum", "1")),
		"gRPC-Web, whose status is at its end": acts(header("Content-Type", "application/grpc-web+proto"),
			write("\x80\x00\x00\x00\x10grpc-status: 14\r\n"), flush),
		"taken over": acts(flush, func(w http.ResponseWriter) {
			if conn, _, err := http.NewResponseController(w).Hijack(); err == nil {
				_ = conn.Close()
			}
		}),
		"not to be kept":     func(w http.ResponseWriter, r *http.Request) { flush(w); latch.DoNotKeep(r.Context()) },
		"ends its goroutine": acts(write("x"), flush, func(http.ResponseWriter) { runtime.Goexit() }),
	} {
		parallel.Run(t, name, func(t *testing.T) {
			for _, opts := range [][]lock.Option{{patient}, {patient, lock.WithRerunAbandoned()}} {
				var e effects
				server := startServer(t, once(newLocker(t, memstore.New(), opts...), latch.WithBodyLimits(100, 100))(e.then(answer)))
				if res, err := server.Client().Do(clientRequest(t, server.URL, "k")); err == nil {
					_, _ = io.Copy(io.Discard, res.Body)
					require.NoError(t, res.Body.Close())
				}
				again := exchanged(t, server, clientRequest(t, server.URL, "k"))
				require.Equal(t, 409, again.status)
				require.Contains(t, string(again.body), "#result-not-replayable")
				e.require(t, 1)
			}
		})
	}
}

// TestStreamLongerThanItsLease goes on while its client is there, and is kept at its end.
func TestStreamLongerThanItsLease(t *testing.T) {
	t.Parallel()
	for long, again := range map[int]string{1: "x", 200: "#result-not-replayable"} {
		synctest.Test(t, func(t *testing.T) {
			l := newLocker(t, memstore.New(), lock.WithLogger(quiet))
			var e effects
			h := once(l, latch.WithBodyLimits(100, 100))(e.then(func(w http.ResponseWriter, r *http.Request) {
				flush(w)
				time.Sleep(time.Hour)
				_, _ = io.WriteString(w, strings.Repeat("x", long))
				synctest.Wait()
				require.NoError(t, r.Context().Err())
			}))
			require.Len(t, serve(h, keyed("k")).Body.String(), long)
			require.Contains(t, serve(h, keyed("k")).Body.String(), again)
			e.require(t, 1)
		})
	}
}

// A handler that stops because its context has ended leaves a part, which must not be kept as the whole.
func TestStoppedStreamIsNotWhole(t *testing.T) {
	t.Parallel()
	for name, stop := range map[string]func(t *testing.T, l *lock.Locker, locks lock.Store, leave func()){
		"its client has gone, and its lease is over": func(_ *testing.T, _ *lock.Locker, _ lock.Store, leave func()) { leave() },
		"its lock is lost":                           func(t *testing.T, _ *lock.Locker, locks lock.Store, _ func()) { t.Helper(); operatorFrees(t, locks) },
		"the Locker is closed": func(t *testing.T, l *lock.Locker, _ lock.Store, _ func()) {
			t.Helper()
			ctx := canceled(t)
			go func() { _ = l.Close(ctx) }()
		},
	} {
		inBubble(t, name, func(t *testing.T) {
			store, locks := memstore.New(), memstore.New()
			l := lock.New(store, lock.WithLogger(quiet))
			t.Cleanup(func() { end(l) })
			ctx, leave := context.WithCancel(t.Context())
			var e effects
			answer := e.then(func(w http.ResponseWriter, r *http.Request) {
				_, _ = io.WriteString(w, "a part")
				flush(w)
				stop(t, l, locks, leave)
				<-r.Context().Done()
			})
			outer := once(newLocker(t, memstore.New(), lock.WithMaxHold(time.Hour)))
			inner := latch.Lock(newLocker(t, locks, lock.WithLogger(quiet)), "user", byUser)(answer)
			guarded := outer(once(l)(inner))
			serve(guarded, keyed("k").WithContext(ctx))
			requireProblem(t, wantProblem{status: 409, kind: "result-not-replayable"}, serve(guarded, keyed("k")))
			again := once(newLocker(t, store))(mustNotRun(t))
			requireProblem(t, wantProblem{status: 409, kind: "result-not-replayable"}, serve(again, keyed("k")))
			e.require(t, 1)
		})
	}
}

// TestCutOffStreamIsNotWhole: the handler copies a stream of another service and does not look at the error.
func TestCutOffStreamIsNotWhole(t *testing.T) {
	t.Parallel()
	const head = "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n"
	for answer, kept := range map[string]bool{
		head + "Transfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n": true,
		head + "Transfer-Encoding: chunked\r\n\r\n2\r\nok\r\n":          false,
		head + "\r\nok": false,
	} {
		w := startWire(t, whole, func(int) string { return answer })
		client := upstream(&http.Transport{DisableKeepAlives: true})
		between := once(newLocker(t, memstore.New(), patient)) // another guard
		guard := nest(once(newLocker(t, memstore.New(), patient)), between)
		server := startServer(t, guard(http.HandlerFunc(func(out http.ResponseWriter, r *http.Request) {
			call := must.Get(http.NewRequestWithContext(r.Context(), http.MethodPost, w.url.String(), nil))(t)
			res, err := client.RoundTrip(call)
			require.NoError(t, err)
			flush(out)
			_, _ = io.Copy(out, res.Body)
			require.NoError(t, res.Body.Close())
		})))
		exchanged(t, server, clientRequest(t, server.URL, "k"))
		again := exchanged(t, server, clientRequest(t, server.URL, "k"))
		if kept {
			require.Equal(t, "ok", string(again.body))
		} else {
			require.Contains(t, string(again.body), "#result-not-replayable", answer)
		}
	}
}

// A stream that is recorded takes its own length, at most the limit, and one that is not recorded takes none.
func TestMemoryOfStreams(t *testing.T) {
	testmain.SkipIn(t, testmain.Short, "has 1,000 streams at once")
	const streams, size, limit = 1000, 64 << 10, 128 << 10
	for name, pieces := range map[string]int{"within the limit": 1, "beyond it": 3} {
		t.Run(name, func(t *testing.T) {
			l := newLocker(t, memstore.New(), patient, lock.WithLease(10*time.Minute))
			goOn := make(chan struct{})
			var begun, done sync.WaitGroup
			piece := []byte(strings.Repeat("x", size))
			h := once(l, latch.WithBodyLimits(limit, limit))(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				for range pieces {
					flush(w)
					_, _ = w.Write(piece)
				}
				begun.Done()
				<-goOn
			}))
			before := heap()
			begun.Add(streams)
			for i := range streams {
				done.Go(func() { h.ServeHTTP(&nowhere{http.Header{}}, keyed(fmt.Sprint("k", i))) })
			}
			begun.Wait()
			used := (heap() - before) / streams
			close(goOn)
			done.Wait()
			t.Logf("%d bytes a stream", used)
			if pieces == 1 {
				require.Less(t, used, int64(2*size))
			} else {
				require.Less(t, used, int64(16<<10))
			}
		})
	}
}

func heap() int64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

// nowhere is a ResponseWriter that costs nothing itself.
type nowhere struct{ header http.Header }

func (d *nowhere) Header() http.Header             { return d.header }
func (*nowhere) WriteHeader(int)                   {}
func (*nowhere) Write(p []byte) (int, error)       { return len(p), nil }
func (*nowhere) WriteString(s string) (int, error) { return len(s), nil }
func (*nowhere) Flush()                            {}
