package latchtest

import (
	"net/http"
	"testing"
	"time"

	"github.com/httplatch/httplatch/lock"
	"github.com/httplatch/httplatch/lock/memstore"
)

// Incident replays on your own wiring how a lost packet locks users out: a claim times
// out at the client but was applied at the server, and stays because no process cleans it
// up.
//
// wire returns your guarded handler over the given store. It is called once for each subtest.
// newRequest returns a request, always of the same user. It is called for every request. Make the
// request with httptest.NewRequest, with a method that is guarded (not GET), with a body that the
// handler accepts, and with the same Idempotency-Key if you use one.
//
// The first subtest loses nothing. If it fails, the others are not run. Each of the others sends
// one request, for which the store loses one of these:
//
//   - the reply to the claim (to the first of every key, where guards are nested);
//   - the replies to all claims;
//   - the replies to all releases and settles;
//   - the replies to the claim and to all releases and settles;
//   - the releases and settles themselves.
//
// It then sends the next request, and the store loses nothing. To pass,
//
//   - no Lock is mounted outside Idempotent or Dedupe: it would refuse repeats instead of
//     giving them the first answer;
//   - the first request is answered within the limit, with success (below 400) or 503;
//   - the next request, sent as soon as the first is answered, succeeds within the limit;
//   - then the store holds no key, except receipts;
//   - no guard reports that it protects nothing because of the way it is mounted, as in fiber by
//     adaptor.HTTPMiddleware, or around a writer that the handler does not use.
//
// The last subtest sends a request twice whose body cannot be parsed. A failure must stay a
// failure: the repeat must not succeed, and must not be refused by a cool-down. Both happen where
// a framework answers errors outside of the guard, and the guard has recorded a success. The
// subtest is skipped if newRequest's requests have no body, or if the first one succeeds.
//
// The limit is two seconds plus ten times the duration of a request without a fault, which the
// first subtest measures. This is enough for a Locker with the default budget of half a second.
// If the next request is refused after the first succeeded, and there is a cool-down or a
// receipt, Incident removes it and sends the request again: you have configured it, and it locks
// no user out.
//
// The store is a memory store that a [lock.Locker] treats as a remote one. A Locker's clean-up
// ends by itself, shortly after the answer. If your tests check for goroutines, close the Locker
// in a t.Cleanup inside wire. Incident takes about four budgets of real time, and cannot be
// called in a testing/synctest bubble, because it has subtests. The Locker logs the faults. Use
// lock.WithLogger to discard these lines.
func Incident(t *testing.T, wire func(lock.Store) http.Handler, newRequest func() *http.Request) {
	t.Helper()
	if wire == nil || newRequest == nil {
		t.Fatalf("latchtest: Incident without a wiring or without a request")
	}
	limit := callTimeout
	for _, l := range losses() {
		passed := t.Run(l.name, func(t *testing.T) { limit = l.replay(t, limit, wire, newRequest) })
		if l.calm() && !passed {
			return // a failure without a fault says nothing about faults
		}
	}
	t.Run(repeatedFailure, func(t *testing.T) { replayFailure(t, limit, wire, newRequest) })
}

// replay returns the limit for the replays that follow.
func (l loss) replay(t reporter, limit time.Duration, wire func(lock.Store) http.Handler, newRequest func() *http.Request) time.Duration {
	t.Helper()
	truth := memstore.New()
	store, p := l.applyTo(truth)
	s := &scene{reporter: t, loss: l, truth: truth, handler: wire(store), newRequest: newRequest, limit: limit}
	if s.handler == nil {
		t.Fatalf("latchtest: wire returned a nil http.Handler")
	}

	began := time.Now()
	first := s.ask("the request that met this")
	if l.calm() {
		s.limit = 2*time.Second + 10*time.Since(began)
	}
	p.stop()
	s.claimed = p.claimed()
	s.judge(first)
	if text := p.mistaken(); text != "" {
		s.failf(nil, "%s", text)
	}
	if !s.claimed {
		s.failf(first, "the request claimed nothing in the store: are its method and its route guarded?")
	}
	if key := p.lockOutside(); key != "" {
		s.failf(nil, "Lock is mounted outside Idempotent or Dedupe: it held %q when the record of the request was claimed, so that repeats are "+
			"refused by the lock and its cool-down instead of getting the first answer; mount Idempotent and Dedupe outside Lock", key)
	}
	s.sendNext()
	s.waitUntilFree()
	return s.limit
}
