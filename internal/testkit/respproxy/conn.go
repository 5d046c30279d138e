package respproxy

import (
	"io"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// conn is one client's connection and its twin to the server. Three goroutines
// serve it: requests (client to server), receive (server to channel) and
// deliver (everything to the client).
type conn struct {
	proxy   *Proxy
	client  *net.TCPConn
	server  net.Conn
	intake  *intake
	open    *queue
	replies chan reply  // closed when the server is gone
	stream  atomic.Bool // the server no longer sends replies, but the replication stream

	delivered chan struct{} // closed when deliver has returned
	done      chan struct{} // closed by Kill
	kill      func()        // closes both sockets

	// Deliver's own.
	mute bool // the client gets nothing more
	last End  // the way in which its connection ends
}

type reply struct {
	raw  []byte
	push bool
}

func newConn(p *Proxy, client *net.TCPConn, server net.Conn) *conn {
	c := &conn{
		proxy: p, client: client, server: server,
		intake: &intake{conn: client}, open: newQueue(), replies: make(chan reply),
		delivered: make(chan struct{}), done: make(chan struct{}),
	}
	c.kill = sync.OnceFunc(func() {
		close(c.done)
		// Close alone takes effect when the last Read on the socket has
		// returned, which is after Kill has.
		_ = c.client.CloseWrite()
		_ = c.client.Close()
		_ = c.server.Close()
	})
	return c
}

// Kill is part of [relay.Conn].
func (c *conn) Kill() { c.kill() }

// Run is part of [relay.Conn].
func (c *conn) Run() {
	var wg sync.WaitGroup
	wg.Go(c.requests)
	wg.Go(c.receive)
	wg.Go(c.deliver)
	wg.Wait()
	c.open.abandon()
}

// requests forwards commands until the client is gone, or until one of them
// ends the connection.
func (c *conn) requests() {
	c.forward()
	c.open.close()
	// Bytes that still arrive have to be read: a socket that is closed with
	// unread bytes sends a reset instead of an end.
	_, _ = io.Copy(io.Discard, c.client)
}

func (c *conn) forward() {
	in := newReader(c.intake)
	for {
		args, raw, err := in.command()
		if err != nil || !c.proxy.freeze.wait(c.done) {
			return
		}
		if len(args) == 0 { // has no reply
			_, _ = c.server.Write(raw)
			continue
		}
		name := strings.ToLower(string(args[0]))
		if name == "psync" || name == "sync" {
			c.stream.Store(true)
			_, _ = c.server.Write(raw)
			_, _ = io.Copy(c.server, in.br)
			return
		}
		x := newExchange(name)
		c.proxy.judge(x, args)
		if x.action.kind == hold && !c.hold(x) {
			close(x.over)
			return
		}
		// Opened before it is forwarded, so that every reply finds its exchange.
		c.open.push(x)
		switch {
		case x.action.kind == cutCommand:
			_, _ = c.server.Write(raw[:min(x.action.bytes, len(raw)-1)])
			return
		case x.action.kind == drop:
			if x.action.end == Hang {
				_, _ = io.Copy(io.Discard, c.client) // until the client closes the connection
			}
			return
		case !x.local():
			c.proxy.forwarded(x.name)
			if x.action.kind == translate {
				raw = x.action.translation.forward(args, raw)
			}
			_, _ = c.server.Write(raw) // a dead server shows in receive
		}
	}
}

// hold returns true when x may go on, false when the connection ended.
func (c *conn) hold(x *exchange) bool {
	defer x.deliver() // from here on Rule.Deliver does not deliver it
	var due <-chan time.Time
	if x.action.delay > 0 {
		t := time.NewTimer(x.action.delay)
		defer t.Stop()
		due = t.C
	}
	select {
	case <-x.released:
		return true
	case <-due:
		return true
	case <-c.done:
		return false
	}
}

// receive reads the server's replies until it is gone.
func (c *conn) receive() {
	defer close(c.replies)
	in := newReader(c.server)
	for {
		r, err := c.next(in)
		if err != nil {
			return
		}
		select {
		case c.replies <- r:
		case <-c.delivered:
			return
		}
	}
}

// next reads a reply. The replication stream of a replica is passed on unchanged, and answers no
// command.
func (c *conn) next(in *reader) (r reply, err error) {
	if _, err = in.br.Peek(1); err == nil && c.stream.Load() {
		r.push, r.raw = true, make([]byte, in.br.Buffered())
		_, err = io.ReadFull(in.br, r.raw)
		return r, err
	}
	r.raw, r.push, err = in.reply()
	return r, err
}
