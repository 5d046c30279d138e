// Package proxies holds the tests of orders behind real proxies. It has only tests.
//
// Two servers with an Idempotent over one Redis are behind nginx, HAProxy or Caddy, which have the
// lines of docs/proxies.md. The clients are curl, urllib3, undici, got, go-retryablehttp and
// [client.Transport], each with a key for each order, and with its own rules for repeats. While
// they order, a server is killed or stopped, the proxy is reloaded, connections are cut, or the
// proxy gives up before an order is placed. Then the last answer of each client is compared with
// the rows.
//
// In the twins, the servers have no guard, or repeats do not wait. They must double orders, or leave
// clients without the answer to their order, or the faults would show nothing.
//
// Other tests count how often a proxy sends one POST, for the table of the page.
//
//	go test . -v -args -proxies.intents 40
//
// The table of the orders is written to proxies.txt in $TEST_ARTIFACTS.
//
// [client.Transport]: https://pkg.go.dev/github.com/httplatch/httplatch/client#Transport
package proxies
