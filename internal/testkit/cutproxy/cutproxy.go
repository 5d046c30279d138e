// Package cutproxy is a TCP proxy, for tests, that cuts a connection after a given number
// of bytes: the line that breaks while a request is on its way, or its answer.
package cutproxy

import (
	"context"
	"net"
	"strings"
	"sync"
	"testing"
)

// Direction is that in which bytes go.
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

// Proxy passes connections on to a server. It is safe for concurrent use; Cut and Count are
// about the bytes of all its connections, so a test that cuts has one request under way.
type Proxy struct {
	upstream string
	listener net.Listener
	serving  sync.WaitGroup

	mu     sync.Mutex
	open   map[net.Conn]struct{} // nil when the proxy has ended
	armed  bool
	dir    Direction
	left   int // until it cuts
	passed [2]int
}

// Start starts a proxy to the server at addr, which may be a URL with http. It ends with tb.
func Start(tb testing.TB, addr string) *Proxy {
	tb.Helper()
	l, err := new(net.ListenConfig).Listen(context.Background(), "tcp", "127.0.0.1:0")
	if err != nil {
		tb.Fatal(err)
	}
	p := &Proxy{upstream: strings.TrimPrefix(addr, "http://"), listener: l, open: map[net.Conn]struct{}{}}
	p.serving.Go(func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			p.serving.Go(func() { p.relay(conn) })
		}
	})
	tb.Cleanup(p.Close)
	return p
}

// URL is where the proxy listens.
func (p *Proxy) URL() string { return "http://" + p.listener.Addr().String() }

// Close ends all connections and waits until they have ended. It may be called again.
func (p *Proxy) Close() {
	_ = p.listener.Close() // it may be closed already
	p.mu.Lock()
	for conn := range p.open {
		_ = conn.Close() // what is in flight is given up
	}
	p.open = nil
	p.mu.Unlock()
	p.serving.Wait()
}

// Cut has the proxy cut the connection over which the next n bytes in dir go, after them:
// with 0 as soon as there is a byte to send. Later connections pass.
func (p *Proxy) Cut(dir Direction, n int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.armed, p.dir, p.left = true, dir, n
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
