//nolint:bodyclose // what is recorded has nothing to close
package latchtest_test

import (
	"bytes"
	"io"
	"log"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	latchtest "github.com/httplatch/httplatch/httptest"
	"github.com/httplatch/httplatch/internal/testkit/must"
)

var quiet = slog.New(slog.DiscardHandler)

func order(user string) *http.Request {
	r := httptest.NewRequest(http.MethodPost, "/orders", strings.NewReader(`{"sku":"A"}`))
	r.Header.Set("X-User-ID", user)
	return r
}

func sequence(i int) *http.Request { return order(strconv.Itoa(i)) }

func body(t *testing.T, res *http.Response) string {
	t.Helper()
	b := must.Get(io.ReadAll(res.Body))(t)
	require.NoError(t, res.Body.Close())
	return string(b)
}

// The twin of ExampleStorm: without the lock, every request orders.
func TestStormWithoutALock(t *testing.T) {
	t.Parallel()
	var orders atomic.Int64
	h := http.HandlerFunc(func(http.ResponseWriter, *http.Request) { orders.Add(1) })
	latchtest.Storm(h, 50, func(int) *http.Request { return order("42") })
	require.EqualValues(t, 50, orders.Load())
}

func TestStormIsAtOnce(t *testing.T) {
	t.Parallel()
	const n = 100
	var inside sync.WaitGroup
	inside.Add(n)
	h := http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
		inside.Done()
		inside.Wait() // no request is answered before all have come
	})
	require.Len(t, latchtest.Storm(h, n, sequence), n)
}

func TestStormAnswersInOrder(t *testing.T) {
	t.Parallel()
	h := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("X-User", r.Header.Get("X-User-ID"))
		w.WriteHeader(http.StatusAccepted)
		_, _ = io.Copy(w, r.Body)
	})
	var made []int
	var requests []*http.Request
	answers := latchtest.Storm(h, 20, func(i int) *http.Request {
		made = append(made, i) // unguarded: all on this goroutine
		requests = append(requests, sequence(i))
		return requests[i]
	})
	require.Len(t, answers, 20)
	for i, res := range answers {
		require.Equal(t, i, made[i])
		require.Same(t, requests[i], res.Request)
		require.Equal(t, http.StatusAccepted, res.StatusCode)
		require.Equal(t, strconv.Itoa(i), res.Header.Get("X-User"))
		require.JSONEq(t, `{"sku":"A"}`, body(t, res))
	}
}

func TestStormServesLikeNetHTTP(t *testing.T) {
	t.Parallel()
	contexts := make(chan interface{ Err() error }, 1)
	h := http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		require.Empty(t, must.Get(io.ReadAll(r.Body))(t))
		require.NoError(t, r.Context().Err())
		contexts <- r.Context()
	})
	answers := latchtest.Storm(h, 1, func(int) *http.Request {
		r := must.Get(http.NewRequestWithContext(t.Context(), http.MethodPost, "/orders", nil))(t)
		require.Nil(t, r.Body)
		return r
	})
	require.Equal(t, http.StatusOK, answers[0].StatusCode)
	require.Error(t, (<-contexts).Err(), "a request's context ends with its handler")
}

//nolint:paralleltest // it changes where package log writes
func TestStormOnPanics(t *testing.T) {
	var logged bytes.Buffer
	defer log.SetOutput(log.Writer())
	log.SetOutput(&logged)
	h := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.WriteHeader(http.StatusAccepted)
		switch r.Header.Get("X-User-ID") {
		case "1":
			panic("out of paper")
		case "2":
			panic(http.ErrAbortHandler)
		case "3":
			runtime.Goexit()
		}
	})
	answers := latchtest.Storm(h, 5, sequence)
	for i, answered := range []bool{true, false, false, false, true} {
		require.Equal(t, answered, answers[i] != nil, i)
	}
	require.Contains(t, logged.String(), "latchtest: panic serving POST /orders: out of paper\n")
	require.Contains(t, logged.String(), "storm_test.go", "with a stack")
	require.Equal(t, 1, strings.Count(logged.String(), "panic serving"))
}

func TestStormPanics(t *testing.T) {
	t.Parallel()
	h := http.NotFoundHandler()
	require.PanicsWithValue(t, "latchtest: Storm on a nil http.Handler", func() { latchtest.Storm(nil, 1, sequence) })
	require.PanicsWithValue(t, "latchtest: Storm of 0 requests", func() { latchtest.Storm(h, 0, sequence) })
	require.PanicsWithValue(t, "latchtest: Storm without a function that makes requests", func() { latchtest.Storm(h, 1, nil) })
	require.PanicsWithValue(t, "latchtest: Storm: request 1 is nil", func() {
		latchtest.Storm(h, 2, func(i int) *http.Request {
			if i == 1 {
				return nil
			}
			return sequence(i)
		})
	})
	one := sequence(0)
	require.PanicsWithValue(t, "latchtest: Storm: request 1 is request 0: make a new one each time", func() {
		latchtest.Storm(h, 2, func(int) *http.Request { return one })
	})
}
