package faults_test

import (
	"context"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// relay is a line to a server: slow, or one that leads to another server by
// now. It does not parse commands.
type relay struct {
	listener net.Listener
	toServer atomic.Pointer[pace]
	toClient atomic.Pointer[pace]
	wg       sync.WaitGroup

	mu     sync.Mutex
	server string
	conns  map[net.Conn]struct{}
}

// pace is a line's: so many bytes, then a pause. nil is full speed.
type pace struct {
	bytes int
	pause time.Duration
}

func newRelay(t *testing.T, server string) *relay {
	t.Helper()
	var lc net.ListenConfig
	listener, err := lc.Listen(t.Context(), "tcp", "127.0.0.1:0")
	require.NoError(t, err)
	r := &relay{listener: listener, server: server, conns: make(map[net.Conn]struct{})}
	r.wg.Go(r.accept)
	t.Cleanup(func() {
		_ = listener.Close()
		r.leadTo("")
		r.wg.Wait()
	})
	return r
}

func (r *relay) addr() string { return r.listener.Addr().String() }

func (r *relay) url() string { return "redis://" + r.addr() }

// leadTo ends all connections; new ones go to server. A client has seen the end
// of its connections when this returns, as when a server dies.
func (r *relay) leadTo(server string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.server = server
	for c := range r.conns {
		_ = c.Close()
	}
	clear(r.conns)
}

func (r *relay) accept() {
	for {
		client, err := r.listener.Accept()
		if err != nil {
			return
		}
		r.wg.Go(func() { r.connect(client) })
	}
}

func (r *relay) connect(client net.Conn) {
	defer func() { _ = client.Close() }()
	r.mu.Lock()
	addr := r.server
	r.mu.Unlock()
	server, err := (&net.Dialer{Timeout: time.Second}).DialContext(context.Background(), "tcp", addr)
	if err != nil {
		return
	}
	defer func() { _ = server.Close() }()
	if !r.add(addr, client, server) {
		return
	}
	var ways sync.WaitGroup
	ways.Go(func() { pump(server, client, &r.toServer) })
	ways.Go(func() { pump(client, server, &r.toClient) })
	ways.Wait()
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.conns, client)
	delete(r.conns, server)
}

// add reports whether a line to addr is still wanted.
func (r *relay) add(addr string, client, server net.Conn) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if addr != r.server {
		return false
	}
	r.conns[client], r.conns[server] = struct{}{}, struct{}{}
	return true
}

// pump copies from one side to the other, and ends both when one has ended.
func pump(to, from net.Conn, at *atomic.Pointer[pace]) {
	defer func() { _, _ = to.Close(), from.Close() }()
	buffer := make([]byte, 32<<10)
	for {
		n, err := from.Read(buffer)
		for rest := buffer[:n]; len(rest) > 0; {
			piece := len(rest)
			p := at.Load()
			if p != nil {
				piece = min(piece, p.bytes)
			}
			if _, err := to.Write(rest[:piece]); err != nil {
				return
			}
			if rest = rest[piece:]; p != nil {
				time.Sleep(p.pause)
			}
		}
		if err != nil {
			return
		}
	}
}
