// Package latchtest helps to test code that uses httplatch, and stores that
// are written for it. Its directory is httptest, like the package of net/http
// that tests of handlers begin with.
//
// # Handlers
//
// [Incident] replays on your own wiring what this library exists for, the
// lost packet that locks a user out, and says in words what went wrong. [Storm]
// sends duplicates, all at once:
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
// Where newOrders, which takes a [lock.Store] and returns an [http.Handler], is
// a lock that does not allow for lost packets, the test says
//
//	--- FAIL: TestOrders/claim_reply_lost
//	    the reply of the claim was lost; the next request of the same user was refused with 409: its key "user=42" was left behind by a claim that no caller waited for
//
// Incident also finds guards that are mounted in a way that they cannot protect, and errors that a
// framework answers outside of the guard, and Storm finds replays of what no request was answered with.
//
// # Faults
//
// [LoseReply], [LoseRequest] and [Stall] make any store fail, by operation and
// count, for what you want to see happen yourself. They work in a
// testing/synctest bubble, and so does Storm; close the Locker before the
// bubble ends, so that its clean-up has ended too.
//
// # Stores
//
// [TestStore] holds a [lock.Store] to the rules that its comment states, one
// named subtest a rule:
//
//	func TestMyStore(t *testing.T) {
//		client := dial(t)
//		latchtest.TestStore(t, 50*time.Millisecond, func(*testing.T) lock.Store {
//			return mystore.New(client)
//		})
//	}
//
// A subtest that fails names what the store did and prints the rule in words:
//
//	--- FAIL: TestMyStore/release_not_ours
//	    Release by a token that does not hold the key = true, want false
//	    rule: only the token that holds a key releases it
//
// A [lock.Locker] over a store that passes keeps its promises; over one that
// fails, two holders or a user who is locked out are a matter of time.
package latchtest
