package latchtest

import (
	"context"
	"fmt"
	"log"
	"net/http"
	"net/http/httptest"
	"runtime/debug"
	"sync"
	"time"
)

// Storm sends n requests to h, all at the same time, and returns the answer to request i at index
// i. It is a double click with n clicks. Count the answers, and count the effects in your own
// database. The bodies are complete, and need no closing.
//
// If n is four or more, Storm sends the last quarter a millisecond later. A guard that frees its
// key before the handler has run, as in fiber by adaptor.HTTPMiddleware, lets these requests
// pass. So let a handler under a Lock take some time, as a database does: after a handler that
// has already returned, the late requests may run.
//
// newRequest is called with 0 to n-1 in this order before the first request is sent; make
// the requests with httptest.NewRequest. They are served in this process, without a
// network, so Storm can be used in a testing/synctest bubble: each on its own goroutine,
// with an [httptest.ResponseRecorder], and with a context that ends when h returns, as in
// net/http. There is no connection to hijack. Storm returns when all are answered.
//
// If a handler panics, or ends its goroutine, its client would get no answer: the answer is nil.
// The panic is logged, unless its value is [http.ErrAbortHandler].
//
// Storm panics if h, newRequest or a request is nil, if newRequest returns the first request again,
// or if n is less than 1. It also panics if an answer is marked as a replay
// (Idempotent-Replayed: true), but its status differs from the answer to the request that ran, or
// only one of the two has a body. Then the guard has recorded something else, as it does where a
// framework answers outside of it.
func Storm(h http.Handler, n int, newRequest func(i int) *http.Request) []*http.Response {
	switch {
	case h == nil:
		panic("latchtest: Storm on a nil http.Handler")
	case n < 1:
		panic(fmt.Sprintf("latchtest: Storm of %d requests", n))
	case newRequest == nil:
		panic("latchtest: Storm without a function that makes requests")
	}
	requests := make([]*http.Request, n)
	for i := range requests {
		switch requests[i] = newRequest(i); {
		case requests[i] == nil:
			panic(fmt.Sprintf("latchtest: Storm: request %d is nil", i))
		case i > 0 && requests[i] == requests[0]: // they would read one body
			panic(fmt.Sprintf("latchtest: Storm: request %d is request 0: make a new one each time", i))
		}
	}

	// All requests start when the last goroutine runs. Otherwise the first request would be
	// answered before the last is sent.
	var ready, done sync.WaitGroup
	ready.Add(n)
	gun, second := make(chan struct{}), make(chan struct{})
	answers, empty := make([]*http.Response, n), make([]bool, n)
	for i, r := range requests {
		done.Go(func() {
			ready.Done()
			if i < n-n/4 {
				<-gun
			} else {
				<-second
			}
			if w := serve(h, r); w != nil {
				answers[i] = w.Result()
				empty[i] = w.Body.Len() == 0
				answers[i].Request = r
			}
		})
	}
	ready.Wait()
	close(gun)
	if n >= 4 {
		time.Sleep(afterClick)
	}
	close(second)
	done.Wait()
	requireTrueReplays(answers, empty)
	return answers
}

// afterClick delays the last quarter of a storm.
const afterClick = time.Millisecond

// serve returns h's answer to r, nil if it panicked.
func serve(h http.Handler, r *http.Request) (answer *httptest.ResponseRecorder) {
	ctx, cancel := context.WithCancel(r.Context())
	defer cancel()
	received := r.WithContext(ctx)
	if received.Body == nil {
		received.Body = http.NoBody // handlers never get a nil one
	}
	defer func() {
		switch p := recover(); p {
		case nil, http.ErrAbortHandler:
		default:
			log.Printf("latchtest: panic serving %s %s: %v\n%s", r.Method, r.URL, p, debug.Stack())
		}
	}()
	w := httptest.NewRecorder()
	h.ServeHTTP(w, received)
	return w
}
