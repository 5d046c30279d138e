package pgproxy

import (
	"bufio"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"time"
)

// silence is the effect of a fault on all messages from the server to a client.
type silence int32

const (
	none     silence = iota
	nothing          // nothing after the replies to forwarded messages
	complete         // nothing at all
)

// conn is one client's connection and its twin to the server. Two goroutines serve
// it: requests (client to server) and replies (server to client).
type conn struct {
	proxy          *Proxy
	id             int
	client, server *net.TCPConn
	in             *bufio.Reader // from the client
	silence        atomic.Int32
	done           chan struct{} // closed by Kill
	kill           func()        // closes both sockets

	mu   sync.Mutex
	open []*exchange // forwarded and not yet answered
}

// exchange is an Exchange that was forwarded, or is about to be forwarded.
type exchange struct {
	fault   Fault
	startup bool // it is not counted
	begun   bool // its reply has begun
	reply   []byte
}

func newConn(p *Proxy, id int, client, server *net.TCPConn) *conn {
	c := &conn{proxy: p, id: id, client: client, server: server, in: bufio.NewReader(client), done: make(chan struct{})}
	c.kill = sync.OnceFunc(func() {
		close(c.done)
		_ = c.client.Close()
		_ = c.server.Close()
	})
	return c
}

// Kill is part of [relay.Conn].
func (c *conn) Kill() { c.kill() }

// Run is part of [relay.Conn].
func (c *conn) Run() {
	if !c.start() {
		return
	}
	var wg sync.WaitGroup
	wg.Go(c.requests)
	wg.Go(c.replies)
	wg.Wait()
	for x := c.head(); x != nil; x = c.head() {
		c.pop()
	}
}

// start reads the beginning of the connection, and reports whether the connection goes on.
func (c *conn) start() bool {
	for {
		raw, code, err := readStartup(c.in)
		if err != nil {
			return false
		}
		switch code {
		case sslRequest, gssEncRequest:
			if _, err := c.client.Write([]byte("N")); err != nil {
				return false
			}
		case cancelRequest:
			c.cancel(raw)
			return false
		default:
			c.push(&exchange{startup: true})
			_, err := c.server.Write(raw)
			return err == nil
		}
	}
}

// cancel forwards a CancelRequest, which the server answers by closing the connection.
func (c *conn) cancel(raw []byte) {
	f := c.proxy.judge(&Exchange{Conn: c.id, Ordinal: 1, Cancel: true})
	defer c.proxy.finish(f.Action)
	if f.Action == DelayRequest && !c.sleep(f.Delay) {
		return
	}
	if f.Action == Pass || f.Action == DelayRequest {
		_, _ = c.server.Write(raw)
		_, _ = io.Copy(io.Discard, c.server)
	}
}

// requests forwards the client's messages until the client is gone or a fault ends the forwarding.
// The server is notified of the end after it has received everything.
func (c *conn) requests() {
	defer func() { _ = c.server.CloseWrite() }()
	g := newGroup()
	for ordinal := 1; ; {
		message, err := readMessage(c.in)
		if err != nil {
			return
		}
		ended, alone, err := g.add(message)
		switch {
		case err != nil:
			c.kill()
			return
		case alone:
			_, _ = c.server.Write(message) // a dead server shows in replies
		case ended:
			x, raw := g.take(c.id, ordinal)
			if !c.forward(x, raw) {
				return
			}
			ordinal++
		}
	}
}

// forward applies the decision to x, and reports whether later messages may be forwarded too.
func (c *conn) forward(x *Exchange, raw []byte) bool {
	f := c.proxy.judge(x)
	switch f.Action {
	case Pass, LoseReply, LoseReplyAndCut, DelayReply, CutReply: // nothing yet
	case LoseRequest:
		c.silence.Store(int32(nothing))
		c.proxy.finish(f.Action)
		_, _ = io.Copy(io.Discard, c.client) // until the client closes the connection
		return false
	case CutRequest:
		c.kill()
		c.proxy.finish(f.Action)
		return false
	case Freeze:
		c.silence.Store(int32(complete))
		c.proxy.finish(f.Action)
		<-c.done
		return false
	case DelayRequest:
		if !c.sleep(f.Delay) {
			c.proxy.finish(f.Action)
			return false
		}
	}
	c.push(&exchange{fault: f}) // before it is forwarded, so that every reply finds its exchange
	_, _ = c.server.Write(raw)
	return true
}

// sleep returns false if the connection ends before d is over.
func (c *conn) sleep(d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-c.done:
		return false
	}
}

func (c *conn) push(x *exchange) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.open = append(c.open, x)
}

// head returns the oldest exchange that is not answered, nil if there is none.
func (c *conn) head() *exchange {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.open) == 0 {
		return nil
	}
	return c.open[0]
}

// pop ends the oldest exchange.
func (c *conn) pop() {
	c.mu.Lock()
	x := c.open[0]
	c.open = c.open[1:]
	c.mu.Unlock()
	if !x.startup {
		c.proxy.finish(x.fault.Action)
	}
}
