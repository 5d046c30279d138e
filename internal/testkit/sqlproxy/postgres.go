package sqlproxy

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"sync"
	"sync/atomic"

	"github.com/httplatch/httplatch/internal/testkit/relay"
)

// silence is the effect of a fault on all messages from the server to a client.
type silence int32

const (
	none     silence = iota
	nothing          // nothing after the replies to forwarded messages
	complete         // nothing at all
)

// postgres is a connection that speaks the protocol of PostgreSQL. Two goroutines serve
// it: requests (client to server) and replies (server to client).
type postgres struct {
	*conn

	in      *bufio.Reader // from the client
	silence atomic.Int32

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

func newPostgres(c *conn) relay.Conn { return &postgres{conn: c, in: bufio.NewReader(c.client)} }

// Run is part of [relay.Conn].
func (c *postgres) Run() {
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
func (c *postgres) start() bool {
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
func (c *postgres) cancel(raw []byte) {
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
func (c *postgres) requests() {
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
func (c *postgres) forward(x *Exchange, raw []byte) bool {
	f := c.proxy.judge(x)
	switch f.Action {
	case Pass, LoseReply, LoseReplyAndCut, DelayReply, CutReply, FailReply: // nothing yet
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

func (c *postgres) push(x *exchange) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.open = append(c.open, x)
}

// head returns the oldest exchange that is not answered, nil if there is none.
func (c *postgres) head() *exchange {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.open) == 0 {
		return nil
	}
	return c.open[0]
}

// pop ends the oldest exchange.
func (c *postgres) pop() {
	c.mu.Lock()
	x := c.open[0]
	c.open = c.open[1:]
	c.mu.Unlock()
	if !x.startup {
		c.proxy.finish(x.fault.Action)
	}
}

// replies passes the server's messages on to the client, until the server is gone.
func (c *postgres) replies() {
	in := bufio.NewReader(c.server)
	for {
		message, err := readMessage(in)
		if err != nil {
			break
		}
		x := c.head()
		if x == nil { // a notification, or the server's reason to end the session
			c.say(nothing, message)
			continue
		}
		last := message[0] == readyForQuery
		c.deliver(x, message, last)
		if last {
			c.pop()
		}
	}
	if silence(c.silence.Load()) == none {
		c.kill()
	}
}

// deliver applies the decision for x to a message of its reply.
func (c *postgres) deliver(x *exchange, message []byte, last bool) {
	begins := !x.begun
	x.begun = true
	switch x.fault.Action {
	case LoseReply:
		c.silence.Store(int32(complete))
	case LoseReplyAndCut:
		if last {
			c.kill()
		}
	case CutReply:
		if x.reply = append(x.reply, message...); last {
			c.say(complete, x.reply[:min(x.fault.Bytes, len(x.reply)-1)])
			c.kill()
		}
	case DelayReply:
		if begins && !c.sleep(x.fault.Delay) {
			return
		}
		c.say(complete, message)
	case Pass, DelayRequest, LoseRequest, CutRequest, Freeze, FailReply:
		c.say(complete, message)
	}
}

// say writes to the client, unless a fault has made the connection as silent as
// unless. An error of a client that is gone is ignored: the server still
// answers its messages.
func (c *postgres) say(unless silence, b []byte) {
	if silence(c.silence.Load()) < unless {
		_, _ = c.client.Write(b)
	}
}

// The codes with which a connection may begin, in place of a version.
const (
	cancelRequest = 80877102
	sslRequest    = 80877103
	gssEncRequest = 80877104
)

// The messages that matter, by their first byte.
const (
	query         = 'Q'
	functionCall  = 'F'
	parse         = 'P'
	bind          = 'B'
	execute       = 'E'
	closing       = 'C'
	describe      = 'D'
	flush         = 'H'
	syncing       = 'S'
	readyForQuery = 'Z' // from the server
)

const maxMessage = 1 << 30

var errLength = errors.New("sqlproxy: impossible length of a message")

// readMessage returns a message as it came: its type, its length, its body.
func readMessage(r *bufio.Reader) ([]byte, error) {
	head, err := r.Peek(5)
	if err != nil {
		return nil, fmt.Errorf("sqlproxy: %w", err)
	}
	return readFull(r, 1+int64(binary.BigEndian.Uint32(head[1:])))
}

// readStartup returns a message without a type, and its code.
func readStartup(r *bufio.Reader) (raw []byte, code uint32, err error) {
	head, err := r.Peek(8)
	if err != nil {
		return nil, 0, fmt.Errorf("sqlproxy: %w", err)
	}
	code = binary.BigEndian.Uint32(head[4:])
	raw, err = readFull(r, int64(binary.BigEndian.Uint32(head)))
	return raw, code, err
}

func readFull(r io.Reader, n int64) ([]byte, error) {
	if n < 5 || n > maxMessage {
		return nil, errLength
	}
	raw := make([]byte, n)
	if _, err := io.ReadFull(r, raw); err != nil {
		return nil, fmt.Errorf("sqlproxy: %w", err)
	}
	return raw, nil
}
