// Package mysqlproxy is a proxy between clients and a server of MySQL or MariaDB. It passes on all
// statements except for the ones with a fault.
package mysqlproxy

import (
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/httplatch/httplatch/internal/testkit/relay"
)

// Action is the fate of one statement of a client and of its answer.
type Action uint8

const (
	// Pass forwards it and its answer.
	Pass Action = iota
	// LoseRequest never forwards it, nor anything after it on its connection. The server is not
	// notified of the end of the connection until the proxy ends.
	LoseRequest
	// LoseReply forwards it, and the client receives nothing more on its connection.
	LoseReply
	// CutRequest does not forward it, and cuts the connection.
	CutRequest
	// CutReply forwards it, and cuts the connection in the middle of its answer.
	CutReply
	// Freeze is LoseRequest, counted separately.
	Freeze
	// DelayReply forwards its answer after Fault.Delay.
	DelayReply
	// DelayRequest forwards it after Fault.Delay, even if the client has closed its connection
	// meanwhile.
	DelayRequest
	// FailReply forwards it, and answers with an error of a server that ends.
	FailReply
)

var actionNames = [...]string{"passes", "lose request", "lose reply", "cut request", "cut reply", "freeze", "delay reply", "delay request", "fail reply"}

// String returns the name of a in reports.
func (a Action) String() string {
	if int(a) < len(actionNames) {
		return actionNames[a]
	}
	return fmt.Sprintf("action %d", uint8(a))
}

// Fault is an Action with its delay. The zero Fault lets a statement pass.
type Fault struct {
	Action Action
	Delay  time.Duration // of DelayRequest and DelayReply
}

// Proxy is a proxy before a server. It is safe for concurrent use.
type Proxy struct {
	*relay.Relay

	decide   atomic.Pointer[func(statement string) Fault]
	silences atomic.Int64
}

// First returns a function for [Start], with a fault of the first statement that begins with text.
func First(text string, f Fault) (decide func(statement string) Fault) {
	var struck atomic.Bool
	return func(statement string) Fault {
		if strings.HasPrefix(statement, text) && !struck.Swap(true) {
			return f
		}
		return Fault{}
	}
}

// Silence has all present connections pass on nothing more, in no direction, as a network does
// that has forgotten them. Neither side is notified, and new connections work.
func (p *Proxy) Silence() { p.silences.Add(1) }

// Start starts a proxy before the server at upstream, and ends it with tb. decide returns the
// fault of each statement, concurrently; nil lets all pass. Statements that are prepared at the
// server pass.
func Start(tb testing.TB, upstream string, decide func(statement string) Fault) *Proxy {
	tb.Helper()
	p := new(Proxy)
	p.Decide(decide)
	r, err := relay.Start(0, upstream, func(client, server *net.TCPConn) relay.Conn {
		return &wire{client: client, server: server, proxy: p, silences: p.silences.Load(), dead: make(chan struct{})}
	})
	if err != nil {
		tb.Fatal(err)
	}
	p.Relay = r
	tb.Cleanup(r.Close)
	return p
}

// Decide replaces the function that returns the faults.
func (p *Proxy) Decide(decide func(statement string) Fault) {
	if decide == nil {
		decide = func(string) Fault { return Fault{} }
	}
	p.decide.Store(&decide)
}

// wire is one connection of a client.
type wire struct {
	client, server *net.TCPConn
	proxy          *Proxy
	silences       int64 // before the connection
	kill           sync.Once
	dead           chan struct{} // closed by Kill

	mu    sync.Mutex
	fault Fault // of the answers from now on
}

// Kill is part of [relay.Conn].
func (w *wire) Kill() {
	w.kill.Do(func() {
		close(w.dead)
		_, _ = w.client.Close(), w.server.Close()
	})
}

// Run is part of [relay.Conn].
func (w *wire) Run() {
	var answers sync.WaitGroup
	answers.Go(w.answer)
	w.ask()
	_ = w.server.Close()
	answers.Wait()
}

func (w *wire) sleep(d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-w.dead:
	}
}

// ask passes on the client's packets. The server is notified that the client has left only after
// all packets have arrived.
func (w *wire) ask() {
	for {
		packet, err := readPacket(w.client)
		if err != nil {
			return
		}
		if packet[3] == 0 && len(packet) > 4 && packet[4] == 3 { // a query
			fault := (*w.proxy.decide.Load())(string(packet[5:]))
			w.mu.Lock()
			w.fault = fault
			w.mu.Unlock()
			switch fault.Action {
			case LoseRequest, Freeze:
				<-w.dead
				return
			case CutRequest:
				_ = w.client.Close()
				return
			case DelayRequest:
				w.sleep(fault.Delay)
			case Pass, LoseReply, CutReply, DelayReply, FailReply:
			}
		}
		if w.proxy.silences.Load() > w.silences {
			<-w.dead
			return
		}
		if _, err := w.server.Write(packet); err != nil {
			return
		}
	}
}

// answer passes on the server's packets.
func (w *wire) answer() {
	defer w.client.Close() //nolint:errcheck // nothing is to be done about it
	buffer := make([]byte, 1<<16)
	for {
		n, err := w.server.Read(buffer)
		w.mu.Lock()
		fault := w.fault
		w.fault.Delay = 0
		w.mu.Unlock()
		switch fault.Action {
		case LoseReply:
			n = 0
		case CutReply:
			_, _ = w.client.Write(buffer[:n/2])
			return
		case DelayReply:
			w.sleep(fault.Delay)
		case FailReply:
			n = copy(buffer, "\x24\x00\x00\x01\xff\x1d\x04#08S01Server shutdown in progress")
		case Pass, LoseRequest, CutRequest, Freeze, DelayRequest:
		}
		if _, failed := w.client.Write(buffer[:n]); err != nil || failed != nil && n > 0 {
			return
		}
	}
}

func readPacket(from io.Reader) ([]byte, error) {
	head := make([]byte, 4)
	if _, err := io.ReadFull(from, head); err != nil {
		return nil, err //nolint:wrapcheck // it is not looked at
	}
	packet := make([]byte, 4+int(binary.LittleEndian.Uint32([]byte{head[0], head[1], head[2], 0})))
	copy(packet, head)
	_, err := io.ReadFull(from, packet[4:])
	return packet, err //nolint:wrapcheck // it is not looked at
}
