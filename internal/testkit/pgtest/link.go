package pgtest

import (
	"io"
	"net"
	"sync"
	"testing"
	"time"
)

// Link is the network between a standby and its primary: it may be slow, and cut. It is safe
// for concurrent use.
type Link struct {
	listener net.Listener
	wg       sync.WaitGroup

	mu       sync.Mutex
	upstream string // empty while it is cut
	delay    time.Duration
	conns    map[net.Conn]struct{}
}

// NewLink returns a link that is cut until [Link.To]. It ends with tb.
func NewLink(tb testing.TB) *Link {
	tb.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0") //nolint:noctx // on this machine
	if err != nil {
		tb.Fatalf("pgtest: %v", err)
	}
	l := &Link{listener: listener, conns: map[net.Conn]struct{}{}}
	l.wg.Go(l.accept)
	tb.Cleanup(func() {
		_ = listener.Close()
		l.Cut()
		l.wg.Wait()
	})
	return l
}

// Conninfo is the setting of a standby that follows the primary over l. COMMITs wait for it
// where synchronous_standby_names is "standby".
func (l *Link) Conninfo() string {
	_, port, _ := net.SplitHostPort(l.listener.Addr().String()) // it has one
	return "primary_conninfo=host=127.0.0.1 port=" + port + " user=" + superuser + " application_name=standby"
}

// To has new connections of the standby reach the server at addr.
func (l *Link) To(addr string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.upstream = addr
}

// Delay has all that the primary sends from now on arrive so much later.
func (l *Link) Delay(d time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.delay = d
}

// Cut ends the connection, until [Link.To]. What is on its way is lost.
func (l *Link) Cut() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.upstream = ""
	for c := range l.conns {
		_ = c.Close()
	}
	clear(l.conns)
}

func (l *Link) accept() {
	for {
		standby, err := l.listener.Accept()
		if err != nil {
			return
		}
		l.wg.Go(func() { l.serve(standby) })
	}
}

// connect dials the primary. ok is false while the link is cut.
func (l *Link) connect(standby net.Conn) (primary net.Conn, ok bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.upstream == "" {
		return nil, false
	}
	primary, err := net.DialTimeout("tcp", l.upstream, time.Second) //nolint:noctx // on this machine, where it is answered at once
	if err != nil {
		return nil, false
	}
	l.conns[standby], l.conns[primary] = struct{}{}, struct{}{}
	return primary, true
}

func (l *Link) serve(standby net.Conn) {
	defer func() { _ = standby.Close() }()
	primary, ok := l.connect(standby)
	if !ok {
		return
	}
	type chunk struct {
		data []byte
		due  time.Time
	}
	sent := make(chan chunk, 1<<10)
	l.wg.Go(func() {
		_, _ = io.Copy(primary, standby)
		_ = primary.Close()
	})
	l.wg.Go(func() {
		defer close(sent)
		for buffer := make([]byte, 1<<16); ; {
			n, err := primary.Read(buffer)
			if err != nil {
				return
			}
			l.mu.Lock()
			due := time.Now().Add(l.delay)
			l.mu.Unlock()
			sent <- chunk{append([]byte(nil), buffer[:n]...), due}
		}
	})
	for c := range sent {
		time.Sleep(time.Until(c.due))
		_, _ = standby.Write(c.data) // after the link is cut, it fails
	}
	_ = standby.Close()
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.conns, standby)
	delete(l.conns, primary)
}
