// Package delay has a TCP proxy that is far away: what it forwards arrives late
// by the same time in each direction, and as fast as it was sent. A pipeline of a
// hundred commands costs one round trip, as it does over a long line.
package delay

import (
	"context"
	"errors"
	"net"
	"sync"
	"time"
)

// chunkSize is how much is read at once, and waiting how many chunks may lie
// before a connection that is not read from. A receiver that has more than that
// waiting holds up the others.
const (
	chunkSize = 64 << 10
	waiting   = 4096
)

// Proxy forwards the connections that it accepts.
type Proxy struct {
	listener net.Listener
	to       string
	late     time.Duration
	chunks   chan chunk

	mu     sync.Mutex
	conns  map[net.Conn]struct{} // nil when closed
	copies sync.WaitGroup
	done   chan struct{}
}

// chunk is what was read at once. Every chunk is late by the same time, so that
// one queue has all of them in the order in which they are due.
type chunk struct {
	due  time.Time
	data []byte // nil: the sender has ended
	out  chan<- []byte
}

// Listen starts a proxy before the server at the address to. What one side sends
// reaches the other after late.
func Listen(ctx context.Context, to string, late time.Duration) (*Proxy, error) {
	var lc net.ListenConfig
	listener, err := lc.Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	p := &Proxy{
		listener: listener, to: to, late: late,
		chunks: make(chan chunk, waiting), conns: map[net.Conn]struct{}{}, done: make(chan struct{}),
	}
	go p.deliver()
	p.copies.Go(func() { p.accept(ctx) })
	return p, nil
}

// Addr is where the proxy listens.
func (p *Proxy) Addr() string { return p.listener.Addr().String() }

// Close ends all connections and returns when nothing of the proxy is left.
func (p *Proxy) Close() error {
	err := p.listener.Close()
	p.mu.Lock()
	for conn := range p.conns {
		err = errors.Join(err, conn.Close())
	}
	p.conns = nil
	p.mu.Unlock()
	p.copies.Wait()
	close(p.chunks)
	<-p.done
	return err
}

// accept ends when the listener is closed.
func (p *Proxy) accept(ctx context.Context) {
	for {
		client, err := p.listener.Accept()
		if err != nil {
			return
		}
		var d net.Dialer
		server, err := d.DialContext(ctx, "tcp", p.to)
		if err != nil {
			_ = client.Close()
			continue
		}
		if !p.keep(client, server) {
			return
		}
		pair := &pair{p: p, ends: [2]net.Conn{client, server}}
		pair.open.Store(2)
		p.copies.Go(func() { pair.copy(client, server) })
		p.copies.Go(func() { pair.copy(server, client) })
	}
}

// keep reports whether the proxy still runs. If not, the connections are closed.
func (p *Proxy) keep(conns ...net.Conn) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, conn := range conns {
		if p.conns == nil {
			_ = conn.Close()
			continue
		}
		p.conns[conn] = struct{}{}
	}
	return p.conns != nil
}

// drop closes connections that have ended.
func (p *Proxy) drop(conns ...net.Conn) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, conn := range conns {
		if _, ok := p.conns[conn]; ok {
			delete(p.conns, conn)
			_ = conn.Close()
		}
	}
}

// deliver hands each chunk over when it is due. It sleeps in its own thread:
// the runtime's timers are late by up to a millisecond on a machine that has
// little to do, which is a fifth of what is measured here.
func (p *Proxy) deliver() {
	defer close(p.done)
	for c := range p.chunks {
		sleep(time.Until(c.due))
		if c.data == nil {
			close(c.out)
		} else {
			c.out <- c.data
		}
	}
}
