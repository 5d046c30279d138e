package chain_test

import (
	"math/rand/v2"
	"net"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/httplatch/httplatch/internal/testkit/relay"
)

// line is the way to a service. It cuts one connection in so many, each at another byte of a
// request or of an answer. A connection has one request.
type line struct {
	*relay.Relay

	oneIn int

	mu      sync.Mutex
	longest [2]int          // that has passed; of requests and of answers
	cut     [2]map[int]bool // bytes at which a connection was cut
	cuts    int
}

func startLine(t *testing.T, to string, oneIn int) *line {
	t.Helper()
	l := &line{oneIn: oneIn, cut: [2]map[int]bool{{}, {}}}
	var err error
	l.Relay, err = relay.Start(0, to, func(client, server *net.TCPConn) relay.Conn {
		return &connection{line: l, client: client, server: server, dir: rand.IntN(2), at: -1}
	})
	require.NoError(t, err)
	t.Cleanup(l.Close)
	return l
}

// connection is cut behind the byte at of the direction dir.
type connection struct {
	*line

	client, server net.Conn
	dir, at        int // at is -1 until it is drawn, and -2 if nothing is cut
	passed         [2]int
}

func (c *connection) Run() {
	var both sync.WaitGroup
	both.Go(func() { c.forward(c.server, c.client, 0) })
	both.Go(func() { c.forward(c.client, c.server, 1) })
	both.Wait()
}

func (c *connection) Kill() {
	_ = c.client.Close()
	_ = c.server.Close()
}

func (c *connection) forward(dst, src net.Conn, dir int) {
	defer c.Kill()
	buf := make([]byte, 4096)
	for {
		n, err := src.Read(buf)
		if n > 0 {
			pass, end := c.pass(dir, n)
			if _, failed := dst.Write(buf[:pass]); failed != nil || end {
				return
			}
		}
		if err != nil {
			return
		}
	}
}

// pass returns how many of n bytes go through, and whether the connection ends then.
func (c *connection) pass(dir, n int) (through int, end bool) {
	l := c.line
	l.mu.Lock()
	defer l.mu.Unlock()
	if c.at == -1 {
		c.at = -2
		if rand.IntN(l.oneIn) == 0 {
			c.at = l.draw(c.dir)
		}
	}
	before := c.passed[dir]
	c.passed[dir] += n
	l.longest[dir] = max(l.longest[dir], c.passed[dir])
	if dir != c.dir || c.at < before || c.at >= c.passed[dir] {
		return n, false
	}
	l.cuts++
	l.cut[dir][c.at] = true
	return c.at - before, true
}

// draw returns a byte to cut at. Every second one is one at which no connection was cut, while
// there are any: only long answers have the last ones.
func (l *line) draw(dir int) int {
	all := max(l.longest[dir], 1)
	at := rand.IntN(all)
	if l.cuts%2 == 0 {
		return at
	}
	for n := range all {
		if other := (at + n) % all; !l.cut[dir][other] {
			return other
		}
	}
	return at
}

// figures returns how many connections were cut, at how many different bytes, and how many bytes
// there are.
func (l *line) figures() (cuts, covered, bytes int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.cuts, len(l.cut[0]) + len(l.cut[1]), l.longest[0] + l.longest[1]
}
