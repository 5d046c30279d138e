// Package link is the network between a server and its replica. A test can make it slow, or cut it.
package link

import (
	"io"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/httplatch/httplatch/internal/testkit/relay"
)

// Link is the network between a standby and its primary. It is safe for concurrent use. To connects
// new connections of the standby to a server. Cut ends the connection until the next To: data in
// flight is lost.
type Link struct {
	*relay.Relay

	delay atomic.Int64
}

// New returns a link that is cut until a call of To. It ends with tb.
func New(tb testing.TB) *Link {
	tb.Helper()
	l := &Link{}
	var err error
	l.Relay, err = relay.Start(0, "", func(standby, primary *net.TCPConn) relay.Conn {
		return &linked{link: l, standby: standby, primary: primary}
	})
	if err != nil {
		tb.Fatalf("link: %v", err)
	}
	tb.Cleanup(l.Close)
	return l
}

// Delay delays all data that the primary sends from now on by d.
func (l *Link) Delay(d time.Duration) { l.delay.Store(int64(d)) }

type linked struct {
	link             *Link
	standby, primary net.Conn
}

// Kill is part of [relay.Conn].
func (c *linked) Kill() {
	_ = c.standby.Close()
	_ = c.primary.Close()
}

// Run is part of [relay.Conn].
func (c *linked) Run() {
	type chunk struct {
		data []byte
		due  time.Time
	}
	sent := make(chan chunk, 1<<10)
	var both sync.WaitGroup
	both.Go(func() {
		_, _ = io.Copy(c.primary, c.standby)
		_ = c.primary.Close()
	})
	both.Go(func() {
		defer close(sent)
		for buffer := make([]byte, 1<<16); ; {
			n, err := c.primary.Read(buffer)
			if err != nil {
				return
			}
			due := time.Now().Add(time.Duration(c.link.delay.Load()))
			sent <- chunk{append([]byte(nil), buffer[:n]...), due}
		}
	})
	for part := range sent {
		time.Sleep(time.Until(part.due))
		_, _ = c.standby.Write(part.data) // it fails after the link was cut
	}
	c.Kill()
	both.Wait()
}
