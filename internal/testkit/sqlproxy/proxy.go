package sqlproxy

import (
	"net"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/httplatch/httplatch/internal/testkit/relay"
)

// waitTimeout bounds the waits of tests for exchanges that should be in flight already.
const waitTimeout = 20 * time.Second

// Decide returns the fault of an exchange. It is called once for each exchange,
// on several goroutines at the same time. The exchange waits until Decide
// returns.
type Decide func(x *Exchange) Fault

// Proxy is a running proxy. It is safe for concurrent use.
type Proxy struct {
	*relay.Relay

	decide   atomic.Pointer[Decide]
	silences atomic.Int64

	mu      sync.Mutex
	last    int // number of the newest connection
	decided [actions]int
	over    [actions]int
	changed chan struct{} // closed and replaced when over changes
}

// Postgres starts a proxy on a free port of 127.0.0.1 in front of the PostgreSQL or PgBouncer at
// upstream ("127.0.0.1:5432"), which need not run yet: while the server is down, clients are
// accepted and their connections closed. With a nil decide everything passes. The proxy ends with
// tb, or with Close, and ends all connections and delayed messages.
func Postgres(tb testing.TB, upstream string, decide Decide) *Proxy {
	tb.Helper()
	return start(tb, upstream, decide, newPostgres)
}

// MySQL is [Postgres] for a server of MySQL or MariaDB.
func MySQL(tb testing.TB, upstream string, decide Decide) *Proxy {
	tb.Helper()
	return start(tb, upstream, decide, newMySQL)
}

func start(tb testing.TB, upstream string, decide Decide, protocol func(*conn) relay.Conn) *Proxy {
	tb.Helper()
	p := &Proxy{changed: make(chan struct{})}
	p.Decide(decide)
	var err error
	if p.Relay, err = relay.Start(0, upstream, func(client, server *net.TCPConn) relay.Conn { return protocol(p.open(client, server)) }); err != nil {
		tb.Fatalf("sqlproxy: %v", err)
	}
	tb.Cleanup(p.Close)
	return p
}

// First returns a function that gives f to the first exchange whose statement begins with text.
func First(text string, f Fault) Decide {
	var struck atomic.Bool
	return func(x *Exchange) Fault {
		if len(x.SQL) > 0 && strings.HasPrefix(x.SQL[0], text) && !struck.Swap(true) {
			return f
		}
		return Fault{}
	}
}

// Silence has all present connections to a MySQL server pass on nothing more, as a network does
// that has forgotten them. Neither side is notified, and new connections work.
func (p *Proxy) Silence() { p.silences.Add(1) }

// Decide replaces the function that decides. nil lets everything pass.
func (p *Proxy) Decide(decide Decide) {
	if decide == nil {
		decide = func(*Exchange) Fault { return Fault{} }
	}
	p.decide.Store(&decide)
}

// URL returns "postgres://user@127.0.0.1:port/db?sslmode=disable".
func (p *Proxy) URL(db, user string) string {
	u := url.URL{Scheme: "postgres", User: url.User(user), Host: p.Addr(), Path: "/" + db, RawQuery: "sslmode=disable"}
	return u.String()
}

// Count returns the number of exchanges for which a was decided.
func (p *Proxy) Count(a Action) int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.decided[a]
}

// Wait waits until n exchanges with action a are over: the server has answered them, or never will.
// An exchange that is lost, cut before it was forwarded, or frozen is over at once. A wait that
// takes too long fails tb but does not end it, so that Wait may be used in any goroutine.
func (p *Proxy) Wait(tb testing.TB, a Action, n int) {
	tb.Helper()
	timeout := time.NewTimer(waitTimeout)
	defer timeout.Stop()
	for {
		p.mu.Lock()
		over, changed := p.over[a], p.changed
		p.mu.Unlock()
		if over >= n {
			return
		}
		select {
		case <-changed:
		case <-timeout.C:
			tb.Errorf("sqlproxy: %q was over %d times within %v, not %d times", a, over, waitTimeout, n)
			return
		}
	}
}

// judge decides the fault of x, and counts it.
func (p *Proxy) judge(x *Exchange) Fault {
	f := (*p.decide.Load())(x)
	p.mu.Lock()
	defer p.mu.Unlock()
	p.decided[f.Action]++
	return f
}

// finish counts an exchange that is over.
func (p *Proxy) finish(a Action) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.over[a]++
	close(p.changed)
	p.changed = make(chan struct{})
}

func (p *Proxy) open(client, server *net.TCPConn) *conn {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.last++
	c := &conn{proxy: p, id: p.last, client: client, server: server, done: make(chan struct{})}
	c.kill = sync.OnceFunc(func() {
		close(c.done)
		_ = client.Close()
		_ = server.Close()
	})
	return c
}

// conn is one client's connection and its twin to the server.
type conn struct {
	proxy          *Proxy
	id             int
	client, server *net.TCPConn
	done           chan struct{} // closed by Kill
	kill           func()        // closes both sockets
}

// Kill is part of [relay.Conn].
func (c *conn) Kill() { c.kill() }

// sleep returns false if the connection ends before d is over.
func (c *conn) sleep(d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-c.done:
		return false
	}
}
