package overload

import (
	"bufio"
	"io"
	"net"
	"sync"
	"sync/atomic"
)

// link is a client's connection and its twin to the server.
type link struct {
	proxy          *Proxy
	client, server *net.TCPConn
	dead           atomic.Bool // something was swallowed
}

// Run is part of [relay.Conn].
func (l *link) Run() {
	var both sync.WaitGroup
	both.Go(func() {
		if l.proxy.pace == nil {
			l.copy(l.client, func(data []byte) error { _, err := l.server.Write(data); return err })
		} else {
			l.forward()
		}
		// Not Close: the server does what it has read, although the client is gone.
		_ = l.server.CloseWrite()
	})
	both.Go(func() {
		back := newLine(&l.proxy.way)
		both.Go(func() {
			back.deliver(l.client)
			_ = l.client.Close()
		})
		l.copy(l.server, func(data []byte) error { back.send(data); return nil })
		close(back.queue)
	})
	both.Wait()
	_ = l.server.Close()
}

// forward brings commands to the server, each in its turn.
func (l *link) forward() {
	in := bufio.NewReaderSize(l.client, 16<<10)
	var command []byte
	for {
		var err error
		if command, err = appendCommand(command[:0], in); err != nil {
			return
		}
		l.proxy.pace.wait()
		l.proxy.commands.Add(1)
		if l.mute() {
			_, _ = io.Copy(io.Discard, l.client)
			return
		}
		if _, err := l.server.Write(command); err != nil {
			return
		}
	}
}

// copy hands on everything that comes from one side.
func (l *link) copy(from net.Conn, handOn func(data []byte) error) {
	piece := make([]byte, 32<<10)
	for {
		n, err := from.Read(piece)
		if n > 0 && !l.mute() {
			if err := handOn(piece[:n]); err != nil {
				_, _ = io.Copy(io.Discard, from) // to close it now would cut off what comes the other way
				return
			}
		}
		if err != nil {
			return
		}
	}
}

// mute reports whether what has arrived is to be swallowed.
func (l *link) mute() bool {
	if l.proxy.silent.Load() {
		l.dead.Store(true)
	}
	return l.dead.Load()
}

// Kill is part of [relay.Conn]. It ends the connection with a reset for the client.
func (l *link) Kill() {
	_ = l.client.SetLinger(0)
	_ = l.client.Close()
	_ = l.server.Close()
}
