package latchtest

import (
	"io"
	"net/http"
	"strings"
	"time"

	"github.com/httplatch/httplatch/internal/keytext"
	"github.com/httplatch/httplatch/lock"
	"github.com/httplatch/httplatch/lock/memstore"
)

const repeatedFailure = "failure_repeated"

// brokenBody is neither JSON nor a form.
const brokenBody = `{"%zz`

// replayFailure sends a request twice that the handler has to refuse.
func replayFailure(t reporter, limit time.Duration, wire func(lock.Store) http.Handler, newRequest func() *http.Request) {
	t.Helper()
	truth := memstore.New()
	calm := loss{words: "the body could not be parsed"}
	store, p := calm.applyTo(truth)
	s := &scene{reporter: t, loss: calm, truth: truth, handler: wire(store), newRequest: func() *http.Request { return broken(newRequest()) }, limit: limit}
	if r := newRequest(); r.Body == nil || r.Body == http.NoBody {
		t.Skipf("newRequest's request has no body to break")
	}
	first := s.try("the first request")
	if first == nil || first.Code < http.StatusBadRequest {
		t.Skipf("a request whose body cannot be parsed does not fail")
	}
	again := s.try("its repeat")
	switch text := p.mistaken(); {
	case text != "":
		s.failf(nil, "%s", text)
	case again == nil:
	case again.Code < http.StatusBadRequest:
		s.failf(again, "the request was %s, and its repeat with %d: a failure has become a success; is the error answered outside of the guard, "+
			"which has recorded something else?", verdict(first), again.Code)
	case refused(again) && s.cooling():
		s.failf(again, "the request was %s, and its repeat was %s: a cool-down began after a failure; is the error answered outside of the guard, "+
			"which has seen no failure?", verdict(first), verdict(again))
	}
}

// cooling reports whether there is a cool-down of a lock.
func (s *scene) cooling() bool {
	s.Helper()
	for _, e := range s.entries() {
		if e.State == lock.Settled && !keytext.IsRecord(e.Key) {
			return true
		}
	}
	return false
}

// broken returns r with a broken body.
func broken(r *http.Request) *http.Request {
	r.Body, r.GetBody, r.ContentLength = io.NopCloser(strings.NewReader(brokenBody)), nil, int64(len(brokenBody))
	return r
}
