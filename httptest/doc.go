// Package latchtest helps to test code that uses httplatch, and stores for it. Its directory has
// the name of the package net/http/httptest, with which tests of handlers begin.
//
// # Handlers
//
// [Incident] replays on your own wiring the failure that this library prevents, the lost packet
// that locks a user out, and explains each mistake in words. [Storm] sends duplicates, all at
// once:
//
//	func TestOrders(t *testing.T) {
//		order := func() *http.Request {
//			r := httptest.NewRequest("POST", "/orders", strings.NewReader(`{"sku":"A"}`))
//			r.Header.Set("X-User-ID", "42")
//			return r
//		}
//		latchtest.Incident(t, newOrders, order)
//
//		orders := newOrders(memstore.New())
//		created := 0
//		for _, res := range latchtest.Storm(orders, 50, func(int) *http.Request { return order() }) {
//			if res.StatusCode == http.StatusCreated {
//				created++
//			}
//		}
//		if created != 1 {
//			t.Errorf("a double click makes %d orders", created)
//		}
//	}
//
// newOrders takes a [lock.Store] and returns an [http.Handler]. If its lock does not allow for
// lost packets, the test says
//
//	--- FAIL: TestOrders/claim_reply_lost
//	    the reply of the claim was lost; the next request of the same user was refused with 409: its key "user=42" was left behind by a claim that no caller waited for
//
// Incident also finds guards that protect nothing as they are mounted, and errors that a framework
// answers outside of the guard. Storm finds replays of an answer that no request got.
//
// [Coverage] finds routes of an application that have no guard at all.
//
// # Faults
//
// [LoseReply], [LoseRequest] and [Stall] make any store fail, by operation and count, for
// your own tests. They work in a testing/synctest bubble, and so does Storm; close the Locker
// before the bubble ends, so that its clean-up has ended, too.
//
// # Stores
//
// [TestStore] checks a [lock.Store] by the rules of its documentation, one named subtest a rule:
//
//	func TestMyStore(t *testing.T) {
//		client := dial(t)
//		latchtest.TestStore(t, 50*time.Millisecond, func(*testing.T) lock.Store {
//			return mystore.New(client)
//		})
//	}
//
// A subtest that fails names the mistake of the store and prints the rule in words:
//
//	--- FAIL: TestMyStore/release_not_ours
//	    Release by a token that does not hold the key = true, want false
//	    rule: only the token that holds a key releases it
//
// A [lock.Locker] over a store that passes keeps its promises. Over a store that fails, sooner or
// later there are two holders, or a user is locked out.
package latchtest
