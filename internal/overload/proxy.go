package overload

import (
	"context"
	"errors"
	"net"
	"sync"
	"sync/atomic"
	"time"
)

// Proxy stands before a Redis server. It is safe for concurrent use.
type Proxy struct {
	addr, server string
	pace         *pace // nil: all that the server can do

	way      way
	commands atomic.Int64
	silent   atomic.Bool

	mu       sync.Mutex
	listener net.Listener // nil while connections are refused
	links    map[*link]struct{}
	closed   bool
	running  sync.WaitGroup
}

// StartProxy listens at addr and forwards to server, over all connections
// together so many commands a second, or any number if perSecond is 0. Like a
// server, it takes what has arrived in turn, also from clients that have closed
// their connection meanwhile.
//
// The port of addr should lie below the system's ephemeral range: while
// connections are refused, a client that dials a port in that range may be
// connected to itself.
func StartProxy(ctx context.Context, addr, server string, perSecond int) (*Proxy, error) {
	p := &Proxy{addr: addr, server: server, links: map[*link]struct{}{}}
	if perSecond > 0 {
		p.pace = newPace(perSecond)
	}
	if err := p.listen(ctx); err != nil {
		return nil, err
	}
	return p, nil
}

// Addr is where it listens.
func (p *Proxy) Addr() string { return p.addr }

// Commands is how many it has taken, those that a client sends when it connects
// among them. They are counted only where they are bounded.
func (p *Proxy) Commands() int64 { return p.commands.Load() }

// Stall lets nothing through for d, and then what has come meanwhile. It is for
// proxies that bound the number of commands.
func (p *Proxy) Stall(d time.Duration) { p.pace.stall(d) }

// Silence swallows everything in both directions until [Proxy.Speak], and closes
// nothing. A connection of which something was swallowed stays silent for ever,
// like one whose state a router has lost: what follows the gap is no protocol.
func (p *Proxy) Silence() { p.silent.Store(true) }

// Speak ends the silence for new connections, and for those that were idle.
func (p *Proxy) Speak() { p.silent.Store(false) }

// Refuse closes all connections and refuses new ones until [Proxy.Admit].
func (p *Proxy) Refuse() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	err := p.listener.Close()
	p.listener = nil
	for l := range p.links {
		l.reset()
	}
	return err
}

// Admit lets clients connect again.
func (p *Proxy) Admit(ctx context.Context) error { return p.listen(ctx) }

// Close ends everything, and returns when it has.
func (p *Proxy) Close() error {
	p.mu.Lock()
	p.closed = true
	var err error
	if p.listener != nil {
		err = p.listener.Close()
	}
	for l := range p.links {
		l.reset()
	}
	p.mu.Unlock()
	p.running.Wait()
	return err
}

func (p *Proxy) listen(ctx context.Context) error {
	var config net.ListenConfig
	listener, err := config.Listen(ctx, "tcp", p.addr)
	if err != nil {
		return err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.listener = listener
	p.running.Go(func() { p.accept(context.WithoutCancel(ctx), listener) })
	return nil
}

func (p *Proxy) accept(ctx context.Context, listener net.Listener) {
	for {
		client, err := listener.Accept()
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err == nil {
			p.running.Go(func() { p.serve(ctx, client) })
		}
	}
}

func (p *Proxy) serve(ctx context.Context, client net.Conn) {
	var dialer net.Dialer
	server, err := dialer.DialContext(ctx, "tcp", p.server)
	if err != nil {
		_ = client.Close()
		return
	}
	l := &link{proxy: p, client: client, server: server}
	p.mu.Lock()
	if p.closed || p.listener == nil {
		p.mu.Unlock()
		l.reset()
		return
	}
	p.links[l] = struct{}{}
	p.mu.Unlock()
	l.run()
	p.mu.Lock()
	delete(p.links, l)
	p.mu.Unlock()
}
