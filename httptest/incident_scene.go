package latchtest

import (
	"bytes"
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"time"

	"github.com/httplatch/httplatch/lock"
	"github.com/httplatch/httplatch/lock/memstore"
)

// scene is one replay of the incident.
type scene struct {
	reporter
	loss       loss
	truth      *memstore.Store // the store without the loss
	handler    http.Handler
	newRequest func() *http.Request
	limit      time.Duration
	sent       *http.Request // the latest one
	served     bool          // the first request was successful
	claimed    bool          // the first request has claimed a key
}

// failf reports a mistake after the loss. answer shows it, or is nil.
func (s *scene) failf(answer *httptest.ResponseRecorder, format string, args ...any) {
	s.Helper()
	text := s.loss.words + "; " + fmt.Sprintf(format, args...)
	if answer != nil {
		if body := bytes.TrimSpace(answer.Body.Next(200)); len(body) > 0 {
			text += "\nits answer: " + string(body)
		}
	}
	s.Fatalf("%s", text)
}

// ask sends a request and returns the answer, which comes within the limit.
func (s *scene) ask(who string) *httptest.ResponseRecorder {
	s.Helper()
	answer := s.try(who)
	if answer == nil {
		s.failf(nil, "%s was not answered: its handler panicked", who)
	}
	return answer
}

// try sends a request whose handler may panic: then there is no answer.
func (s *scene) try(who string) *httptest.ResponseRecorder {
	s.Helper()
	r := s.newRequest()
	switch r {
	case nil:
		s.Fatalf("latchtest: newRequest returned nil")
	case s.sent: // its body was read
		s.Fatalf("latchtest: newRequest returned one request twice: make a new one each time")
	}
	s.sent = r
	ctx, cancel := context.WithCancel(r.Context())
	defer cancel()
	r = r.WithContext(ctx)
	answers := make(chan *httptest.ResponseRecorder, 1)
	go func() {
		var answer *httptest.ResponseRecorder
		defer func() { answers <- answer }() // even if the handler ends the goroutine
		answer = serve(s.handler, r)
	}()
	timer := time.NewTimer(s.limit)
	defer timer.Stop()
	select {
	case answer := <-answers:
		return answer
	case <-timer.C:
		if s.loss.calm() {
			who += ", which waited for nothing else (" + twice + "),"
		}
		s.failf(nil, "%s was not answered within %v", who, s.limit)
		return nil
	}
}

// twice is a guess why a request was refused by itself, or waits for itself.
const twice = "is a guard mounted twice on its way, or another one with the same name and key?"

// judge checks the answer to the first request.
func (s *scene) judge(first *httptest.ResponseRecorder) {
	s.Helper()
	s.served = first.Code < http.StatusBadRequest
	switch {
	case s.served || first.Code == http.StatusServiceUnavailable && !s.loss.calm():
	case s.loss.calm() && refused(first) && s.claimed:
		s.failf(first, "newRequest's request was %s, want success: nothing else was under way, so it was refused by itself; "+twice, verdict(first))
	case s.loss.calm():
		s.failf(first, "newRequest's request was %s, want success", verdict(first))
	case refused(first) && s.held() != "":
		s.failf(first, "the request that met this was %s, want success or 503: it was refused by its own earlier claim of %s", verdict(first), s.held())
	default:
		s.failf(first, "the request that met this was %s, want success or 503", verdict(first))
	}
}

// sendNext sends the next request.
func (s *scene) sendNext() {
	s.Helper()
	const who = "the next request of the same user"
	answer := s.ask(who)
	if s.served && refused(answer) && s.forgetSettled() {
		answer = s.ask(who)
	}
	held := s.held()
	switch {
	case answer.Code < http.StatusBadRequest:
	case held != "":
		s.failf(answer, "%s was %s: its key %s was left behind by %s", who, verdict(answer), held, s.culprit())
	case refused(answer):
		s.failf(answer, "%s was %s, although nothing is held in the store", who, verdict(answer))
	default:
		s.failf(answer, "%s was %s, want success", who, verdict(answer))
	}
}

// culprit names the origin of the entries that are held after the first request.
func (s *scene) culprit() string {
	if s.served {
		return "a request that had been answered"
	}
	return "a claim that no caller waited for"
}

// waitUntilFree waits until nothing is held.
func (s *scene) waitUntilFree() {
	s.Helper()
	for began := time.Now(); ; time.Sleep(time.Millisecond) {
		held := s.held()
		if held == "" {
			return
		}
		if time.Since(began) > s.limit {
			s.failf(nil, "the next request of the same user succeeded, but after another %v key %s is still held", s.limit, held)
		}
	}
}

// held names the keys that are held, "" if none is.
func (s *scene) held() string {
	s.Helper()
	var keys []string
	for _, e := range s.entries() {
		if e.State != lock.Settled {
			keys = append(keys, fmt.Sprintf("%q", e.Key))
		}
	}
	slices.Sort(keys)
	return strings.Join(keys, ", ")
}

// forgetSettled removes receipts and cool-downs, and reports whether there were
// any.
func (s *scene) forgetSettled() bool {
	s.Helper()
	found := false
	for _, e := range s.entries() {
		if e.State != lock.Settled {
			continue
		}
		if _, err := s.truth.Forget(s.Context(), e.Key, e.Token); err != nil {
			s.Fatalf("latchtest: Forget: %v", err)
		}
		found = true
	}
	return found
}

func (s *scene) entries() []lock.Entry {
	s.Helper()
	var all []lock.Entry
	for e, err := range s.truth.List(s.Context()) {
		if err != nil {
			s.Fatalf("latchtest: List: %v", err)
		}
		all = append(all, e)
	}
	return all
}

// refused reports whether an answer has a status of a lock's refusal.
func refused(answer *httptest.ResponseRecorder) bool {
	switch answer.Code {
	case http.StatusConflict, http.StatusLocked, http.StatusTooEarly, http.StatusTooManyRequests:
		return true
	}
	return false
}

func verdict(answer *httptest.ResponseRecorder) string {
	if refused(answer) {
		return fmt.Sprintf("refused with %d", answer.Code)
	}
	return fmt.Sprintf("answered with %d", answer.Code)
}
