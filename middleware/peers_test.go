package middleware_test

// Each test here is a bug that was reported for another library of this kind, and is named
// after the thread. More of them are rows of internal/semantics.

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/httplatch/httplatch/lock"
	"github.com/httplatch/httplatch/lock/memstore"
)

// A former owner deleted the lock of its successor.
func TestTruxify4623FormerOwnerReleases(t *testing.T) {
	t.Parallel()
	store, operatorRemoves := removable(t)
	l, other := newLocker(t, store, patient, lock.WithWait(0)), newLocker(t, store.Store)
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

// A record in use was mistaken for an orphan because its handler took longer
// than the lease.
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

// scribbler breaks the rule that a writer does not change the bytes that it is given.
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
