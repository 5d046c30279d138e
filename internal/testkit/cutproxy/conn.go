package cutproxy

import (
	"bytes"
	"net"
	"sync"
	"time"
)

type conn struct {
	proxy          *Proxy
	client, server net.Conn
	cut            bool // guarded by the proxy's mutex
}

// Run is part of [relay.Conn].
func (c *conn) Run() {
	var both sync.WaitGroup
	both.Go(func() { c.forward(c.server, c.client, Request) })
	both.Go(func() { c.forward(c.client, c.server, Response) })
	both.Wait()
}

// Kill is part of [relay.Conn].
func (c *conn) Kill() {
	_ = c.client.Close() // bytes in flight are lost
	_ = c.server.Close()
}

// chunk is bytes that are on their way until they are due.
type chunk struct {
	data []byte
	due  time.Time
}

// forward passes on the bytes of src, and ends both connections when src ends.
func (c *conn) forward(dst, src net.Conn, dir Direction) {
	underway := make(chan chunk, 1<<10)
	var reading sync.WaitGroup
	reading.Go(func() {
		defer close(underway)
		for buf := make([]byte, 32<<10); ; {
			n, err := src.Read(buf)
			pass, delay, end := c.proxy.pass(dir, n, &c.cut)
			if pass > 0 {
				underway <- chunk{bytes.Clone(buf[:pass]), time.Now().Add(delay)}
			}
			if end || err != nil {
				return
			}
		}
	})
	for next := range underway {
		time.Sleep(time.Until(next.due))
		if !c.write(dst, next.data, dir) {
			c.Kill() // the reader ends, too
		}
	}
	c.Kill()
	reading.Wait()
}

// write writes data at the pace of the direction.
func (c *conn) write(dst net.Conn, data []byte, dir Direction) (ok bool) {
	for len(data) > 0 {
		n, pause := c.proxy.pace(dir)
		if n == 0 {
			n = len(data)
		}
		n = min(n, len(data))
		if _, err := dst.Write(data[:n]); err != nil {
			return false
		}
		data = data[n:]
		time.Sleep(pause)
	}
	return true
}

// pass returns how many of n bytes go through, how late, and whether the connection ends after
// them. Bytes over a connection that was cut, such as the answer to its last bytes, are neither
// passed on nor counted.
func (p *Proxy) pass(dir Direction, n int, cut *bool) (through int, delay time.Duration, end bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if dir == Response {
		delay = p.delay
	}
	if *cut {
		return 0, 0, true
	}
	p.passed[dir] += n
	if n == 0 || !p.armed || dir != p.dir {
		return n, delay, false
	}
	if n < p.left {
		p.left -= n
		return n, delay, false
	}
	p.armed, *cut = false, true
	return p.left, delay, true
}

func (p *Proxy) pace(dir Direction) (n int, pause time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.bytes[dir], p.pause[dir]
}
