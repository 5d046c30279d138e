package cutproxy

import (
	"net"
	"sync"
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

// forward passes on the bytes of src, and ends both connections when src ends.
func (c *conn) forward(dst, src net.Conn, dir Direction) {
	defer c.Kill()
	buf := make([]byte, 4096)
	for {
		n, err := src.Read(buf)
		if n > 0 {
			pass, end := c.proxy.pass(dir, n, &c.cut)
			if _, failed := dst.Write(buf[:pass]); failed != nil || end {
				return
			}
		}
		if err != nil {
			return
		}
	}
}

// pass returns how many of n bytes go through, and whether the connection ends after them. Bytes
// over a connection that was cut, such as the answer to its last bytes, are neither passed on nor
// counted.
func (p *Proxy) pass(dir Direction, n int, cut *bool) (through int, end bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if *cut {
		return 0, true
	}
	p.passed[dir] += n
	if !p.armed || dir != p.dir {
		return n, false
	}
	if n < p.left {
		p.left -= n
		return n, false
	}
	p.armed, *cut = false, true
	return p.left, true
}
