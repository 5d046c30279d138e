package delay

import (
	"net"
	"slices"
	"sync/atomic"
	"time"
)

// pair is a client's connection and the one to the server that belongs to it.
type pair struct {
	p    *Proxy
	ends [2]net.Conn
	open atomic.Int32 // directions
}

// copy forwards one direction until its sender has ended and all that was sent
// has arrived.
func (c *pair) copy(to, from net.Conn) {
	out := make(chan []byte, waiting)
	go c.read(from, out)
	for data := range out {
		if _, err := to.Write(data); err != nil {
			_ = from.Close() // the reader ends; what it has read is not wanted
		}
	}
	if half, ok := to.(*net.TCPConn); ok {
		_ = half.CloseWrite()
	}
	if c.open.Add(-1) == 0 {
		c.p.drop(c.ends[:]...)
	}
}

func (c *pair) read(from net.Conn, out chan<- []byte) {
	buffer := make([]byte, chunkSize)
	for {
		n, err := from.Read(buffer)
		due := time.Now().Add(c.p.late)
		if n > 0 {
			c.p.chunks <- chunk{due, slices.Clone(buffer[:n]), out}
		}
		if err != nil {
			c.p.chunks <- chunk{due, nil, out}
			return
		}
	}
}
