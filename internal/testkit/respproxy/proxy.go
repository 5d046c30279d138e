package respproxy

import (
	"net"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/httplatch/httplatch/internal/testkit/process"
	"github.com/httplatch/httplatch/internal/testkit/relay"
)

// Proxy is a running proxy. It is safe for concurrent use. Its Addr stays the same after Down and
// Up. Down also drops held commands.
type Proxy struct {
	*relay.Relay

	port   int
	freeze freeze

	mu       sync.Mutex
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
	p := &Proxy{port: port, commands: map[string]int{}}
	p.Relay, err = relay.Start(port, upstream, func(client, server *net.TCPConn) relay.Conn { return newConn(p, client, server) })
	if err != nil {
		tb.Fatalf("respproxy: %v", err)
	}
	tb.Cleanup(p.Close)
	return p
}

// Port returns the port of Addr.
func (p *Proxy) Port() int { return p.port }

// URL is "redis://127.0.0.1:port".
func (p *Proxy) URL() string { return "redis://" + p.Addr() }

// On applies action to commands that m selects. If several rules select a
// command, the oldest one that is still active gets it.
func (p *Proxy) On(m Match, action Action) *Rule {
	r := &Rule{match: m, action: action, changed: make(chan struct{})}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.rules = append(p.rules, r)
	return r
}

// SwallowReplies swallows every reply, including replies to the handshake of
// new connections, until the rule is removed.
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

// Commands returns the number of commands called name, in any case, that have
// been forwarded to the server.
func (p *Proxy) Commands(name string) int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.commands[strings.ToLower(name)]
}

// Freeze stops everything in both directions. Connections stay open, and new
// ones are accepted and hang. Bytes that were being written pass.
func (p *Proxy) Freeze() { p.freeze.begin() }

// Thaw ends Freeze: bytes that came meanwhile are passed on.
func (p *Proxy) Thaw() { p.freeze.end() }

// Up ends Down.
func (p *Proxy) Up(tb testing.TB) {
	tb.Helper()
	if err := p.Relay.Up(); err != nil {
		tb.Fatalf("respproxy: %v", err)
	}
}

// judge finds the action for a command.
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
