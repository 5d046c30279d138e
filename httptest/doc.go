// Package latchtest helps to test code that uses httplatch, and stores that
// are written for it. Its directory is httptest, like the package of net/http
// that tests of handlers begin with.
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
