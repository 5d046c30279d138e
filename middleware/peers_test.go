package middleware_test

// Each test here is a bug that was reported for another library of this kind,
// and is named after the thread.

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/httplatch/httplatch/keyfunc"
	"github.com/httplatch/httplatch/lock"
	"github.com/httplatch/httplatch/lock/memstore"
	latch "github.com/httplatch/httplatch/middleware"
)

// A large response was not stored, so the retry ran the handler again.
func TestFiber4018LargeResponseRunsAgain(t *testing.T) {
	t.Parallel()
	var e effects
	h := once(newLocker(t, memstore.New()))(e.then(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = w.Write(make([]byte, 1<<20+1))
	}))
	require.Equal(t, 1<<20+1, serve(h, keyed("k")).Body.Len())
	requireProblem(t, wantProblem{status: 409, kind: "result-not-replayable"}, serve(h, keyed("k")))
	e.require(t, 1)
}

// The client library sent the claim again after a lost reply, and was refused
// by itself.
func TestGoRedis2985RetryConflictsWithItself(t *testing.T) {
	t.Parallel()
	memory := memstore.New()
	sends := 0
	l := newLocker(t, &stubStore{Store: memory, OnClaim: func(ctx context.Context, key string, c lock.Claim) (lock.Entry, error) {
		entry, err := memory.Claim(ctx, key, c)
		if sends++; sends == 1 {
			return lock.Entry{}, errors.New("reply lost")
		}
		return entry, err
	}}, patient)
	var e effects
	require.Equal(t, 201, serve(once(l)(http.HandlerFunc(e.answer)), keyed("k")).Code)
	require.Equal(t, 2, sends)
	e.require(t, 1)
}

// A former owner deleted the lock of its successor.
func TestTruxify4623FormerOwnerReleases(t *testing.T) {
	t.Parallel()
	store, operatorRemoves := removable(t)
	l, other := newLocker(t, store, patient), newLocker(t, store.Store)
	arrived, finish := make(chan struct{}), make(chan struct{})
	answered := make(chan int)
	serve(once(l)(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		operatorRemoves()
		go func() {
			answered <- serve(once(other)(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				close(arrived)
				<-finish
				created(w, r)
			})), keyed("k")).Code
		}()
		<-arrived
		w.WriteHeader(500) // after which the former owner releases
	})), keyed("k"))
	requireProblem(t, wantProblem{status: 409, kind: "in-progress", retryAfter: "1"}, serve(once(l)(mustNotRun(t)), keyed("k")))
	close(finish)
	require.Equal(t, 201, <-answered)
	require.Equal(t, "true", serve(once(l)(mustNotRun(t)), keyed("k")).Header().Get("Idempotent-Replayed"))
}

// A live record was taken for an orphan because its handler took longer than
// the lease.
func TestPowertoolsPython8386LiveRecordIsReclaimed(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store := memstore.New()
		opts := []lock.Option{lock.WithLease(time.Second), lock.WithRerunAbandoned()}
		l, other := lock.New(store, opts...), lock.New(store, opts...)
		t.Cleanup(func() { end(l); end(other) })
		var e effects
		serve(once(l)(e.then(func(http.ResponseWriter, *http.Request) {
			for range 20 {
				time.Sleep(500 * time.Millisecond)
				require.Equal(t, 409, serve(once(other)(mustNotRun(t)), keyed("k")).Code)
			}
		})), keyed("k"))
		e.require(t, 1)
	})
}

// An exception after the effect deleted the claim.
func TestActorTS984ExceptionAfterTheEffect(t *testing.T) {
	t.Parallel()
	var e effects
	h := once(newLocker(t, memstore.New()))(e.then(func(_ http.ResponseWriter, r *http.Request) {
		require.NoError(t, lock.Commit(r.Context()))
		panic(http.ErrAbortHandler)
	}))
	require.Panics(t, func() { serve(h, keyed("k")) })
	require.Equal(t, 409, serve(h, keyed("k")).Code)
	e.require(t, 1)
}

// The disconnect of the client cancelled the writing of the record.
func TestFiber4560DisconnectCancelsTheRecord(t *testing.T) {
	t.Parallel()
	store := spyOn(&stubStore{Store: memstore.New()})
	store.settle = func(ctx context.Context) (bool, error) { return true, ctx.Err() }
	var e effects
	ctx, leave := newCancel(t)
	h := once(newLocker(t, store, patient))(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		leave()
		e.answer(w, r)
	}))
	first := serve(h, keyed("k").WithContext(ctx))
	requireReplay(t, first, serve(h, keyed("k")))
	e.require(t, 1)
}

// What was decided was decided by whether the answer could be delivered.
func TestPomeSh275DecisionOnTheTransport(t *testing.T) {
	t.Parallel()
	var e effects
	h := once(newLocker(t, memstore.New()))(http.HandlerFunc(e.answer))
	h.ServeHTTP(&brokenPipe{httptest.NewRecorder()}, keyed("k"))
	again := serve(h, keyed("k"))
	require.Equal(t, 201, again.Code)
	require.Equal(t, "order 1", again.Body.String())
	e.require(t, 1)
}

type brokenPipe struct{ http.ResponseWriter }

func (*brokenPipe) Write([]byte) (int, error) { return 0, errors.New("broken pipe") }

// A record referred to a buffer that was used again.
func TestCeleris719RecordAliasesABuffer(t *testing.T) {
	t.Parallel()
	h := once(newLocker(t, memstore.New()))(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		buffer := []byte("good")
		_, _ = w.Write(buffer)
		copy(buffer, "evil")
	}))
	for range 3 {
		w := httptest.NewRecorder()
		h.ServeHTTP(&scribbler{w}, keyed("k"))
		require.Equal(t, "good", w.Body.String())
	}
}

// scribbler breaks the rule that a writer leaves what it is given as it is.
type scribbler struct{ http.ResponseWriter }

func (s *scribbler) Write(p []byte) (int, error) {
	n, err := s.ResponseWriter.Write(p)
	clear(p)
	return n, err
}

// Under load the store timed out, and the request ran.
func TestIdempotentAPI23StoreTimesOut(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		l := lock.New(&stubStore{Store: memstore.New(), OnClaim: func(ctx context.Context, _ string, _ lock.Claim) (lock.Entry, error) {
			<-ctx.Done()
			return lock.Entry{}, ctx.Err()
		}})
		t.Cleanup(func() { end(l) })
		began := time.Now()
		requireProblem(t, wantProblem{status: 503, kind: "unavailable", retryAfter: "1"}, serve(once(l)(mustNotRun(t)), keyed("k")))
		require.LessOrEqual(t, time.Since(began), 500*time.Millisecond)
	})
}

// After a failure the key answered 409 for a day.
func TestAutumn1838StuckAfterFailure(t *testing.T) {
	t.Parallel()
	var e effects
	h := once(newLocker(t, memstore.New()))(e.then(func(w http.ResponseWriter, _ *http.Request) {
		if e.n.Load() < 3 {
			w.WriteHeader(502)
		}
	}))
	require.Equal(t, 502, serve(h, keyed("k")).Code)
	require.Equal(t, 502, serve(h, keyed("k")).Code)
	require.Equal(t, 200, serve(h, keyed("k")).Code)
}

// A handler that ended without a response left its key in progress.
func TestHono92CompletedWithoutResponse(t *testing.T) {
	t.Parallel()
	var e effects
	h := once(newLocker(t, memstore.New()))(e.then(func(http.ResponseWriter, *http.Request) {}))
	requireReplay(t, serve(h, keyed("k")), serve(h, keyed("k")))
	e.require(t, 1)
}

// All anonymous requests shared one scope, and one answer.
func TestTruxify2387AnonymousIsOneUser(t *testing.T) {
	t.Parallel()
	l := newLocker(t, memstore.New())
	anonymous := keyfunc.Context(func(context.Context) string { return "" })
	h := latch.Idempotent(l, anonymous, keyfunc.IdempotencyKey)(mustNotRun(t))
	requireProblem(t, wantProblem{status: 401, kind: "unauthenticated"}, serve(h, keyed("k")))

	var e effects
	skips := latch.Idempotent(l, keyfunc.Optional(anonymous), keyfunc.IdempotencyKey)(http.HandlerFunc(e.answer))
	require.Equal(t, "order 1", serve(skips, keyed("k")).Body.String())
	require.Equal(t, "order 2", serve(skips, keyed("k")).Body.String(), "unguarded, rather than one for all")
}

// One key on two endpoints: the second was silently skipped, with 200.
func TestArcadeDB5023KeyOnAnotherEndpoint(t *testing.T) {
	t.Parallel()
	var e effects
	h := once(newLocker(t, memstore.New()))(http.HandlerFunc(e.answer))
	for i, path := range []string{"/orders", "/orders/1/pay", "/orders/2/pay"} {
		r := keyed("k")
		r.URL.Path = path
		require.Equal(t, "order "+itoa(int64(i+1)), serve(h, r).Body.String())
	}
}

// The query was ignored, so that a dry run answered for the real one.
func TestFacility196QueryIsIgnored(t *testing.T) {
	t.Parallel()
	h := once(newLocker(t, memstore.New()))(http.HandlerFunc(created))
	dry, wet := keyed("k"), keyed("k")
	dry.URL.RawQuery = "dry=1"
	require.Equal(t, 201, serve(h, dry).Code)
	require.Equal(t, 422, serve(h, wet).Code)
}

// A replay handed out the session of the first client.
func TestGranit1151CookiesAreReplayed(t *testing.T) {
	t.Parallel()
	h := once(newLocker(t, memstore.New()))(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		http.SetCookie(w, &http.Cookie{Name: "session", Value: "s"})
	}))
	require.NotEmpty(t, serve(h, keyed("k")).Result().Cookies())
	require.Empty(t, serve(h, keyed("k")).Result().Cookies())
}

// Headers with several values, or commas in them, came back split or joined,
// and a 201 came back as 200.
func TestFiber4693HeadersAreSplit(t *testing.T) {
	t.Parallel()
	h := once(newLocker(t, memstore.New()))(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header()["Link"] = []string{"</a>; rel=\"x, y\"", "</b>"}
		w.Header()["x-lower"] = []string{"kept as it is"}
		w.WriteHeader(201)
	}))
	first := serve(h, keyed("k"))
	again := serve(h, keyed("k"))
	require.Equal(t, 201, again.Code)
	require.Equal(t, first.Result().Header["Link"], again.Result().Header["Link"])
	require.Contains(t, again.Result().Header, "x-lower", "its spelling is kept")
}

// All requests without a body had the fingerprint of the empty one, whatever else differed, and
// so had requests whose body had been read before.
func TestIdempotentAPI58HashOfNothing(t *testing.T) {
	t.Parallel()
	l := newLocker(t, memstore.New())
	h := latch.Idempotent(l, byUser, keyfunc.JSON("/id"))(http.HandlerFunc(created)) // reads the body first
	require.Equal(t, 201, serve(h, keyedBody("", `{"id":1,"sku":"x"}`)).Code)
	require.Equal(t, 422, serve(h, keyedBody("", `{"id":1,"sku":"y"}`)).Code)
}

// The fingerprint was lost when the record was completed, and all retries were
// refused.
func TestPowertoolsTS5705HashIsLostOnCompletion(t *testing.T) {
	t.Parallel()
	var e effects
	h := once(newLocker(t, memstore.New()))(http.HandlerFunc(e.answer))
	first := serve(h, keyed("k"))
	requireReplay(t, first, serve(h, keyed("k")))
	require.Equal(t, 422, serve(h, keyedBody("k", "different")).Code)
	requireReplay(t, first, serve(h, keyed("k")))
}

// A 400 for a wrong one-time password was kept, and the right one refused.
func TestTruxify2869WrongPasswordIsKept(t *testing.T) {
	t.Parallel()
	h := latch.Idempotent(newLocker(t, memstore.New()), byUser, keyfunc.IdempotencyKey,
		latch.WithFingerprint(keyfunc.Global), latch.WithFinal(func(status int) bool { return status < 300 }))(
		http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if body, _ := io.ReadAll(r.Body); string(body) != "right" {
				w.WriteHeader(400)
			}
		}))
	require.Equal(t, 400, serve(h, keyedBody("k", "wrong")).Code)
	require.Equal(t, 200, serve(h, keyedBody("k", "right")).Code)
}

// Clients could send the header by which the library marked its own requests.
func TestExpressIdempotency35InternalHeader(t *testing.T) {
	t.Parallel()
	var e effects
	h := once(newLocker(t, memstore.New()))(http.HandlerFunc(e.answer))
	for range 2 {
		r := keyed("k")
		r.Header.Set("Idempotent-Replayed", "true")
		require.Equal(t, "order 1", serve(h, r).Body.String())
	}
	e.require(t, 1)
}

// Credentials of the request were written to the store.
func TestExpressIdempotencyStoresCredentials(t *testing.T) {
	t.Parallel()
	var stored atomic.Value
	store := &recordingStore{Store: memstore.New(), stored: &stored}
	r := keyedBody("k", "password=hunter2")
	r.Header.Set("Authorization", "Bearer hunter2")
	r.Header.Set("Cookie", "session=hunter2")
	serve(once(newLocker(t, store, patient))(http.HandlerFunc(created)), r)
	require.NotEmpty(t, stored.Load())
	require.NotContains(t, stored.Load(), "hunter2")
}

type recordingStore struct {
	lock.Store
	stored *atomic.Value
}

func (s *recordingStore) Settle(ctx context.Context, key string, c lock.Claim, receipt []byte, keep time.Duration) (bool, error) {
	s.stored.Store(fmt.Sprint(key, c.Token, string(receipt)))
	return s.Store.Settle(ctx, key, c, receipt, keep)
}

// A middleware that buffered everything broke streams of events.
func TestGodoxy206EventStreamIsBuffered(t *testing.T) {
	t.Parallel()
	more := make(chan struct{})
	server := startServer(t, once(newLocker(t, memstore.New()))(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream")
		flusher, ok := w.(http.Flusher)
		if !ok {
			t.Error("no http.Flusher")
			return
		}
		_, _ = io.WriteString(w, "data: 1\n\n")
		flusher.Flush()
		select {
		case <-more:
			_, _ = io.WriteString(w, "data: 2\n\n")
		case <-r.Context().Done():
			t.Error("the stream ended by itself")
		}
	})))
	res, err := server.Client().Do(clientRequest(t, server.URL, "k"))
	require.NoError(t, err)
	defer func() { _ = res.Body.Close() }()
	event := make([]byte, len("data: 1\n\n"))
	_, err = io.ReadFull(res.Body, event)
	require.NoError(t, err, "the first event comes while the handler still runs")
	close(more)
	rest, err := io.ReadAll(res.Body)
	require.NoError(t, err)
	require.Equal(t, "data: 2\n\n", string(rest))
}

// A wrapped writer hid http.Flusher and http.Hijacker.
func TestChi544WriterHidesInterfaces(t *testing.T) {
	t.Parallel()
	serve(once(newLocker(t, memstore.New()))(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		require.Implements(t, (*http.Flusher)(nil), w)
		require.Implements(t, (*http.Hijacker)(nil), w)
		require.Implements(t, (*io.StringWriter)(nil), w)
		require.Implements(t, (*interface{ Unwrap() http.ResponseWriter })(nil), w)
		_, reads := w.(io.ReaderFrom)
		require.False(t, reads, "it would go past the record")
	})), keyed("k"))
}

// A race was answered with 503, which opened the clients' circuit breakers.
func TestIdempotJS181RaceIsUnavailable(t *testing.T) {
	t.Parallel()
	l := newLocker(t, memstore.New())
	for _, w := range storm(50, func(int) *httptest.ResponseRecorder {
		return serve(once(l)(http.HandlerFunc(created)), keyed("k"))
	}) {
		require.Contains(t, []int{201, 409}, w.Code)
	}
}

// Overlapping prefixes let one scope and key be another scope and key.
func TestDevlink1195KeysThatRunTogether(t *testing.T) {
	t.Parallel()
	var e effects
	l := newLocker(t, memstore.New())
	scope := keyfunc.Header("X-Scope")
	h := latch.Idempotent(l, scope, keyfunc.IdempotencyKey)(http.HandlerFunc(e.answer))
	for i, pair := range [][2]string{{"a", "bc"}, {"ab", "c"}, {"a:b", "c"}, {"a", "b:c"}} {
		r := keyed(pair[1])
		r.Header.Set("X-Scope", pair[0])
		require.Equal(t, "order "+itoa(int64(i+1)), serve(h, r).Body.String(), strings.Join(pair[:], "|"))
	}
}
