package respproxy_test

import (
	"fmt"
	"net"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/httplatch/httplatch/internal/testkit/redistest"
	"github.com/httplatch/httplatch/internal/testkit/respproxy"
)

func TestAddresses(t *testing.T) {
	t.Parallel()
	_, p := started(t)
	opt, err := redis.ParseURL(p.URL())
	require.NoError(t, err)
	require.Equal(t, p.Addr(), opt.Addr)
	_, port, err := net.SplitHostPort(p.Addr())
	require.NoError(t, err)
	require.Equal(t, strconv.Itoa(p.Port()), port)
}

func TestSwallowReplies(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		end  respproxy.End
		sees require.ErrorAssertionFunc
	}{
		"close": {respproxy.Close, requireEOF},
		"reset": {respproxy.Reset, requireResetOrEOF},
		"hang":  {respproxy.Hang, requireTimeout},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s, p := started(t)
			key := key(t)
			c := bare(t, p.Addr())
			if tt.end == respproxy.Hang {
				c = impatient(t, p.Addr())
			}
			goesOn(t, c)
			mode := p.SwallowReplies(tt.end)
			tt.sees(t, c.Incr(t.Context(), key).Err())
			require.Eventually(t, func() bool { return s.Do(t, "GET", key) == "1" }, patience, time.Millisecond)
			require.Error(t, c.Incr(t.Context(), key).Err(), "a new connection gets no answer to its handshake")
			require.Equal(t, "1", s.Do(t, "GET", key))
			mode.Remove()
			goesOn(t, c)
			require.EqualValues(t, 2, bare(t, p.Addr()).Incr(t.Context(), key).Val())
		})
	}
}

func TestDownAndUp(t *testing.T) {
	t.Parallel()
	s, p := started(t)
	c := bare(t, p.Addr())
	for range 5 {
		require.NoError(t, c.Ping(t.Context()).Err())
		conn := dial(t, p.Addr())
		say(t, conn, "PING\r\n")
		hear(t, conn, "+PONG\r\n")

		p.Down()
		p.Down()
		_, err := conn.Read(make([]byte, 1))
		requireEOF(t, err)
		require.Error(t, c.Ping(t.Context()).Err()) // an error of its connection, if the client has not noticed the end, or a refused dial
		_, err = new(net.Dialer).DialContext(t.Context(), "tcp", p.Addr())
		require.ErrorIs(t, err, syscall.ECONNREFUSED)
		require.Equal(t, "PONG", s.Do(t, "PING"))

		p.Up(t)
		p.Up(t)
	}
}

func TestDownDropsWhatIsHeld(t *testing.T) {
	t.Parallel()
	s, p := started(t)
	key := key(t)
	rule := p.On(respproxy.Match{Name: "set"}, respproxy.Hold())
	requireTimeout(t, impatient(t, p.Addr()).Set(t.Context(), key, "v", 0).Err())
	rule.Wait(t, 1)
	p.Down()
	rule.WaitLanded(t)
	require.Equal(t, 0, rule.Deliver(t))
	require.Nil(t, s.Do(t, "GET", key))
}

func TestFreezeAndThaw(t *testing.T) {
	t.Parallel()
	s, p := started(t)
	key := key(t)
	c := impatient(t, p.Addr())
	p.Freeze()
	requireTimeout(t, c.Incr(t.Context(), key).Err())
	requireTimeout(t, c.Incr(t.Context(), key).Err(), "on a new connection")
	require.Nil(t, s.Do(t, "GET", key))
	p.Thaw()
	require.Eventually(t, func() bool {
		return s.Do(t, "GET", key) == "1" // the second one got stuck in its handshake
	}, patience, time.Millisecond, "what came meanwhile passes on")
	goesOn(t, c)
}

// TestFreezeHoldsReplies: a reply in flight at the beginning of a freeze
// arrives at its end.
func TestFreezeHoldsReplies(t *testing.T) {
	t.Parallel()
	_, p := started(t)
	delay := readTimeout
	var conn *net.TCPConn
	for late := true; late; delay *= 2 { // until the machine is quick enough to be before the reply
		p.Thaw()
		rule := p.On(respproxy.Match{Name: "echo", Count: 1}, respproxy.DelayReply(delay))
		conn = dial(t, p.Addr())
		began := time.Now()
		say(t, conn, "ECHO a\r\n")
		rule.Wait(t, 1)
		p.Freeze()
		late = time.Since(began) >= delay
	}
	require.NoError(t, conn.SetReadDeadline(time.Now().Add(delay)))
	_, err := conn.Read(make([]byte, 1))
	requireTimeout(t, err)
	p.Thaw()
	require.NoError(t, conn.SetReadDeadline(time.Now().Add(patience)))
	hear(t, conn, "$1\r\na\r\n")
}

func TestServerDiesAndComesBack(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	p := respproxy.Start(t, s.Addr())
	conn := dial(t, p.Addr())
	say(t, conn, "PING\r\n")
	hear(t, conn, "+PONG\r\n")
	s.Kill()
	_, err := conn.Read(make([]byte, 1))
	requireEOF(t, err)
	requireEOF(t, bare(t, p.Addr()).Ping(t.Context()).Err())
	s.Restart(t)
	require.NoError(t, bare(t, p.Addr()).Ping(t.Context()).Err())
}

// TestEndsWithEverythingUnderWay leaves a command in each state behind, for the
// leak check of TestMain.
func TestEndsWithEverythingUnderWay(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	p := respproxy.Start(t, s.Addr())
	for i, a := range []respproxy.Action{
		respproxy.Hold(), respproxy.HoldFor(time.Hour), respproxy.DelayReply(time.Hour), respproxy.Swallow(respproxy.Hang),
		respproxy.Drop(respproxy.Hang), respproxy.Swallow(respproxy.Close), respproxy.Swallow(respproxy.Reset),
		{},
	} {
		rule := p.On(respproxy.Match{Name: "echo", Count: 1}, a)
		conn := dial(t, p.Addr())
		say(t, conn, "PING\r\nECHO a\r\nPING\r\n")
		rule.Wait(t, 1)
		if i%2 == 0 {
			require.NoError(t, conn.Close())
		}
	}
	p.Freeze()
	say(t, dial(t, p.Addr()), "PING\r\n")
	s.Stop()
	say(t, dial(t, p.Addr()), "PING\r\n")
}

// A replica reaches its master through a proxy, as in a cluster whose nodes
// announce the ports of proxies.
func TestReplicaBehindAProxy(t *testing.T) {
	t.Parallel()
	master := redistest.Start(t)
	master.Do(t, "CONFIG", "SET", "repl-diskless-sync-delay", "2") // it sends signs of life meanwhile
	proxy := respproxy.Start(t, master.Addr())
	master.Do(t, "SET", "before", strings.Repeat("x", 100_000))
	replica := redistest.Start(t, "--replicaof", fmt.Sprintf("127.0.0.1 %d", proxy.Port()))
	replica.AwaitSync(t, master)
	master.Do(t, "SET", "after", "y")
	replica.AwaitSync(t, master)
	require.Equal(t, "y", replica.Do(t, "GET", "after"))
	proxy.Down()
	require.Eventually(t, func() bool {
		return strings.Contains(fmt.Sprint(replica.Do(t, "INFO", "replication")), "master_link_status:down")
	}, 20*time.Second, 10*time.Millisecond)
}
