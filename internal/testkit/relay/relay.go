// Package relay is the part that the proxies of tests share: it accepts connections, connects
// each with a server, and ends them.
package relay

import (
	"context"
	"net"
	"sync"
	"time"
)

// dialTimeout bounds the dial of a server that does not accept connections. On one machine, most
// such servers refuse at once.
const dialTimeout = 20 * time.Second

// Conn is a client's connection and its twin to the server.
type Conn interface {
	// Run serves the connection until both sides are gone.
	Run()
	// Kill ends the connection at once. It may be called again, and before Run.
	Kill()
}

// Relay listens at one port of 127.0.0.1. It is safe for concurrent use.
type Relay struct {
	open    func(client, server *net.TCPConn) Conn
	running sync.WaitGroup

	mu       sync.Mutex
	addr     *net.TCPAddr
	upstream string
	listener *net.TCPListener // nil while down
	conns    map[Conn]struct{}
}

// Start listens at port, or at a free port if port is 0. The server at upstream need not run: while
// it is down, clients are accepted and their connections closed. open makes a Conn of two
// connections, which are closed when its Run has returned.
func Start(port int, upstream string, open func(client, server *net.TCPConn) Conn) (*Relay, error) {
	r := &Relay{open: open, upstream: upstream, addr: &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: port}, conns: map[Conn]struct{}{}}
	return r, r.Up()
}

// Addr returns "127.0.0.1:port", the same after Down and Up.
func (r *Relay) Addr() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.addr.String()
}

// Up ends Down. On a relay that is up it does nothing.
func (r *Relay) Up() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.listener != nil {
		return nil
	}
	ln, err := net.ListenTCP("tcp", r.addr)
	for try := 0; err != nil && try < 50; try++ { // a short-lived socket of another process may occupy the port
		time.Sleep(20 * time.Millisecond)
		ln, err = net.ListenTCP("tcp", r.addr)
	}
	if err != nil {
		return err //nolint:wrapcheck // it names the address
	}
	r.listener = ln
	r.addr, _ = ln.Addr().(*net.TCPAddr)
	r.running.Go(func() { r.accept(ln) })
	return nil
}

// Down closes all connections and refuses new ones, until Up. On a relay that is down it does
// nothing.
func (r *Relay) Down() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.listener != nil {
		stopListening(r.listener)
		_ = r.listener.Close()
		r.listener = nil
	}
	r.kill()
}

// To connects new connections to another server.
func (r *Relay) To(upstream string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.upstream = upstream
}

// Cut ends all connections, and new ones at once, until To.
func (r *Relay) Cut() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.upstream = ""
	r.kill()
}

// Close is Down, and returns when nothing is left.
func (r *Relay) Close() {
	r.Down()
	r.running.Wait()
}

func (r *Relay) kill() {
	for c := range r.conns {
		c.Kill()
	}
}

func (r *Relay) accept(ln *net.TCPListener) {
	for {
		client, err := ln.AcceptTCP()
		if err != nil {
			return // closed by Down
		}
		r.running.Go(func() { r.serve(ln, client) })
	}
}

func (r *Relay) serve(ln *net.TCPListener, client *net.TCPConn) {
	defer func() { _ = client.Close() }()
	r.mu.Lock()
	upstream := r.upstream
	r.mu.Unlock()
	dialer := net.Dialer{Timeout: dialTimeout}
	dialed, err := dialer.DialContext(context.Background(), "tcp", upstream)
	if err != nil {
		return
	}
	defer func() { _ = dialed.Close() }()
	server, ok := dialed.(*net.TCPConn)
	if !ok {
		return
	}
	c := r.open(client, server)
	defer c.Kill()
	if r.add(ln, upstream, c) {
		defer r.drop(c)
		c.Run()
	}
}

// add reports whether c may go on: Down or To may have been called since c was accepted.
func (r *Relay) add(ln *net.TCPListener, upstream string, c Conn) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.listener != ln || r.upstream != upstream {
		return false
	}
	r.conns[c] = struct{}{}
	return true
}

func (r *Relay) drop(c Conn) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.conns, c)
}
