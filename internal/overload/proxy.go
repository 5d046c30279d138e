package overload

import (
	"net"
	"sync/atomic"
	"time"

	"github.com/httplatch/httplatch/internal/testkit/relay"
)

// Proxy stands before a Redis server. It is safe for concurrent use.
type Proxy struct {
	relay *relay.Relay
	pace  *pace // nil: all that the server can do

	way      way
	commands atomic.Int64
	silent   atomic.Bool
}

// StartProxy listens at port of 127.0.0.1 and forwards to server, at most perSecond commands a
// second over all connections, or any number if perSecond is 0. Like a server, it takes commands
// in the order of their arrival, even if their client has closed its connection meanwhile.
//
// The port should lie below the system's ephemeral range: while
// connections are refused, a client that dials a port in that range may be
// connected to itself.
func StartProxy(port int, server string, perSecond int) (*Proxy, error) {
	p := &Proxy{}
	if perSecond > 0 {
		p.pace = newPace(perSecond)
	}
	var err error
	p.relay, err = relay.Start(port, server, func(client, server *net.TCPConn) relay.Conn {
		return &link{proxy: p, client: client, server: server}
	})
	return p, err
}

// Addr returns the address on which the proxy listens.
func (p *Proxy) Addr() string { return p.relay.Addr() }

// Commands returns the number of commands that the proxy has taken, including those that a client
// sends when it connects. They are counted only if their number is bounded.
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
func (p *Proxy) Refuse() { p.relay.Down() }

// Admit lets clients connect again.
func (p *Proxy) Admit() error { return p.relay.Up() }

// Close ends everything, and returns when it has.
func (p *Proxy) Close() { p.relay.Close() }
