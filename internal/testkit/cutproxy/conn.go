package cutproxy

import (
	"context"
	"net"
	"sync"
)

// relay passes one connection on, until either side ends it or it is cut.
func (p *Proxy) relay(down net.Conn) {
	defer func() { _ = down.Close() }() // it may have been cut
	up, err := new(net.Dialer).DialContext(context.Background(), "tcp", p.upstream)
	if err != nil {
		return
	}
	defer func() { _ = up.Close() }()
	if !p.track(down, up) {
		return
	}
	defer p.forget(down, up)
	var cut bool
	var both sync.WaitGroup
	both.Go(func() { p.forward(up, down, Request, &cut) })
	both.Go(func() { p.forward(down, up, Response, &cut) })
	both.Wait()
}

// track remembers connections for Close, and reports whether there has been none yet.
func (p *Proxy) track(conns ...net.Conn) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.open == nil {
		return false
	}
	for _, c := range conns {
		p.open[c] = struct{}{}
	}
	return true
}

func (p *Proxy) forget(conns ...net.Conn) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, c := range conns {
		delete(p.open, c)
	}
}

// forward passes on what src sends, and ends both connections with its end.
func (p *Proxy) forward(dst, src net.Conn, dir Direction, cut *bool) {
	defer func() {
		_ = src.Close() // the other direction may have closed them
		_ = dst.Close()
	}()
	buf := make([]byte, 4096)
	for {
		n, err := src.Read(buf)
		if n > 0 {
			pass, end := p.pass(dir, n, cut)
			if _, failed := dst.Write(buf[:pass]); failed != nil || end {
				return
			}
		}
		if err != nil {
			return
		}
	}
}

// pass returns how many of n bytes go through, and whether the connection ends then. What
// comes over a connection that was cut, such as the answer to its last bytes, is no part of
// what comes later.
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
