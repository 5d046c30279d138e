// Package cutproxy is a TCP proxy, for tests, that knows no protocol: a line that breaks in the middle
// of a request, or of its answer, that is slow, or that leads to another server.
package cutproxy

import (
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/httplatch/httplatch/internal/testkit/relay"
)

// Direction is the direction of bytes.
type Direction int

// The directions.
const (
	Request  Direction = iota // from the client to the server
	Response                  // back
)

// String is part of [fmt.Stringer].
func (d Direction) String() string {
	if d == Request {
		return "request"
	}
	return "response"
}

// Proxy passes connections on to a server. It is safe for concurrent use; Cut and Count apply to
// the bytes of all its connections, so a test that cuts must have only one request in flight.
type Proxy struct {
	*relay.Relay

	mu     sync.Mutex
	armed  bool
	dir    Direction
	left   int // bytes to pass before the cut
	passed [2]int
	delay  time.Duration
	bytes  [2]int // at a time; 0: all
	pause  [2]time.Duration
}

// Start starts a proxy to the server at addr, which may be a URL with http. With "", all connections
// end at once until a call of To. It ends with tb.
func Start(tb testing.TB, addr string) *Proxy {
	tb.Helper()
	p := &Proxy{}
	var err error
	p.Relay, err = relay.Start(0, strings.TrimPrefix(addr, "http://"), func(client, server *net.TCPConn) relay.Conn {
		return &conn{proxy: p, client: client, server: server}
	})
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(p.Close)
	return p
}

// URL is the address of the proxy.
func (p *Proxy) URL() string { return "http://" + p.Addr() }

// Cut makes the proxy cut a connection after the next n bytes in dir. With 0, it cuts as soon as
// there is a byte to send. Later connections pass.
func (p *Proxy) Cut(dir Direction, n int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.armed, p.dir, p.left = true, dir, n
}

// Break ends all connections, and new ones at once, until To. Bytes in flight are lost.
func (p *Proxy) Break() { p.Relay.Cut() }

// Delay delays all bytes that the server sends from now on by d.
func (p *Proxy) Delay(d time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.delay = d
}

// Pace passes n bytes in dir at a time, with a pause after each. With 0, it passes all at once.
func (p *Proxy) Pace(dir Direction, n int, pause time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.bytes[dir], p.pause[dir] = n, pause
}

// Waiting reports whether a [Proxy.Cut] has not happened yet.
func (p *Proxy) Waiting() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.armed
}

// Count begins to count the bytes of both directions.
func (p *Proxy) Count() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.passed = [2]int{}
}

// Counted returns the bytes that have arrived since [Proxy.Count].
func (p *Proxy) Counted() (request, response int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.passed[Request], p.passed[Response]
}
