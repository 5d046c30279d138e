package respproxy

import (
	"context"
	"net"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/httplatch/httplatch/internal/testkit/process"
)

// Proxy is a running proxy. It is safe for concurrent use.
type Proxy struct {
	upstream string
	port     int
	freeze   freeze
	wg       sync.WaitGroup

	mu       sync.Mutex
	listener *net.TCPListener // nil while down
	conns    map[*conn]struct{}
	rules    []*Rule
	commands map[string]int
}

// Start starts a proxy on a free port of 127.0.0.1 in front of the server at
// upstream ("127.0.0.1:7000"), which need not run yet. It ends with tb.
func Start(tb testing.TB, upstream string) *Proxy {
	tb.Helper()
	port, err := process.FreePort()
	if err != nil {
		tb.Fatal(err)
	}
	p := &Proxy{upstream: upstream, port: port, conns: map[*conn]struct{}{}, commands: map[string]int{}}
	p.Up(tb)
	tb.Cleanup(func() {
		p.Down()
		p.wg.Wait()
	})
	return p
}

// Addr is "127.0.0.1:port". It stays the same through Down and Up.
func (p *Proxy) Addr() string { return net.JoinHostPort("127.0.0.1", strconv.Itoa(p.port)) }

// Port is the port of Addr.
func (p *Proxy) Port() int { return p.port }

// URL is "redis://127.0.0.1:port".
func (p *Proxy) URL() string { return "redis://" + p.Addr() }

// On lets action happen to commands that m selects. Of several rules that
// select a command the oldest that still acts gets it.
func (p *Proxy) On(m Match, action Action) *Rule {
	r := &Rule{match: m, action: action, changed: make(chan struct{})}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.rules = append(p.rules, r)
	return r
}

// SwallowReplies swallows every reply, those to the handshake of new
// connections included, until the rule is removed.
func (p *Proxy) SwallowReplies(then End) *Rule { return p.On(Match{}, Swallow(then)) }

// Clear removes all rules.
func (p *Proxy) Clear() {
	p.mu.Lock()
	rules := p.rules
	p.rules = nil
	p.mu.Unlock()
	for _, r := range rules {
		r.Remove()
	}
}

// Commands is how many commands of that name, in any case, have been forwarded
// to the server.
func (p *Proxy) Commands(name string) int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.commands[strings.ToLower(name)]
}

// Freeze stops everything in both directions; connections stay open, and new
// ones are accepted and hang. What was being written passes.
func (p *Proxy) Freeze() { p.freeze.begin() }

// Thaw ends Freeze: what came meanwhile passes on.
func (p *Proxy) Thaw() { p.freeze.end() }

// Down closes all connections, drops what is held, and refuses new connections.
func (p *Proxy) Down() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.listener == nil {
		return
	}
	_ = p.listener.Close()
	p.listener = nil
	for c := range p.conns {
		c.kill()
	}
}

// Up ends Down.
func (p *Proxy) Up(tb testing.TB) {
	tb.Helper()
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.listener != nil {
		return
	}
	addr := &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: p.port}
	ln, err := net.ListenTCP("tcp", addr)
	for try := 0; err != nil && try < 50; try++ { // another process's short-lived socket may occupy the port
		time.Sleep(20 * time.Millisecond)
		ln, err = net.ListenTCP("tcp", addr)
	}
	if err != nil {
		tb.Fatalf("respproxy: %v", err)
	}
	p.listener = ln
	p.wg.Go(func() { p.accept(ln) })
}

func (p *Proxy) accept(ln *net.TCPListener) {
	for {
		client, err := ln.AcceptTCP()
		if err != nil {
			return // closed by Down
		}
		p.wg.Go(func() { p.serve(ln, client) })
	}
}

// serve connects client with the server until either is gone.
func (p *Proxy) serve(ln *net.TCPListener, client *net.TCPConn) {
	defer func() { _ = client.Close() }()
	d := net.Dialer{Timeout: waitTimeout}
	server, err := d.DialContext(context.Background(), "tcp", p.upstream)
	if err != nil {
		return
	}
	c := newConn(p, client, server)
	defer c.kill()
	if !p.add(ln, c) {
		return
	}
	defer p.drop(c)
	c.run()
}

// add reports whether c may live: Down may have been called since it was
// accepted.
func (p *Proxy) add(ln *net.TCPListener, c *conn) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.listener != ln {
		return false
	}
	p.conns[c] = struct{}{}
	return true
}

func (p *Proxy) drop(c *conn) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.conns, c)
}

// judge finds out what to do with a command.
func (p *Proxy) judge(x *exchange, args [][]byte) {
	p.mu.Lock()
	rules := slices.Clone(p.rules)
	p.mu.Unlock()
	for _, r := range rules {
		if r.judge(x, args) {
			return
		}
	}
}

func (p *Proxy) forwarded(name string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.commands[name]++
}
