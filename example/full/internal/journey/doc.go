// Package journey holds the tests that follow an order from a client to the row. It has
// only tests.
//
// The clients are those that people have: [client.Transport], go-retryablehttp with
// client.CheckRetry, and curl. Their connection is cut, once, at each byte offset of the
// request and of the answer, on a new and on a used connection. The server is the program
// of module example, on its embedded store, on a real Redis and on a real PostgreSQL, behind
// each of its guards.
//
// Where the guard promises it, each intent has one effect, each caller gets the first answer
// byte by byte, and none whose order was placed is shown a 409. Where it promises nothing, and
// where a client sends no key, orders must double, or the cuts would show nothing.
//
//	go test -race . -v -args -journey.every 1
//
// cuts at every offset, as make journey does. Without the argument it is each 60th, and those
// at which something begins or ends. The table is written to journey.txt in $TEST_ARTIFACTS.
//
// [client.Transport]: https://pkg.go.dev/github.com/httplatch/httplatch/client#Transport
package journey
