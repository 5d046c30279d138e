// Package chain holds the tests that follow an order through three services and a provider, each
// a process of its own. It has only tests.
//
// A shop asks billing, billing a ledger, and the ledger a provider that charges once for each
// key, as Stripe does. Each service has an Idempotent over Redis, a row for the order, and a call
// that it names with client.Step. Any connection between two of them may be cut, at each byte of
// a request and of an answer, and any process kills itself: before its row, behind it, behind its
// call, or when its answer is settled and not sent. The customer repeats until there is an answer.
// Then the order has one effect in each of the four.
//
// In the twin, services make a new key for each call. It must double orders, or the faults would
// show nothing.
//
//	go test . -v -args -chain.faults 10000
package chain
