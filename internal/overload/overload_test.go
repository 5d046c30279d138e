package overload_test

import (
	"bufio"
	"net"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/httplatch/httplatch/internal/overload"
	"github.com/httplatch/httplatch/internal/testkit/process"
	"github.com/httplatch/httplatch/internal/testkit/redistest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func proxied(t *testing.T, perSecond int) *overload.Proxy {
	t.Helper()
	port, err := process.FreePort()
	require.NoError(t, err)
	p, err := overload.StartProxy(port, redistest.Start(t).Addr(), perSecond)
	require.NoError(t, err)
	t.Cleanup(p.Close)
	return p
}

func client(t *testing.T, p *overload.Proxy) *redis.Client {
	t.Helper()
	c := redis.NewClient(&redis.Options{Addr: p.Addr(), MaxRetries: -1, DialerRetries: 1, ReadTimeout: 300 * time.Millisecond})
	t.Cleanup(func() { require.NoError(t, c.Close()) })
	return c
}

// A server with room for so many commands a second does no more, however many
// connections ask.
func TestRoomIsWhatTheProxyLetsThrough(t *testing.T) {
	t.Parallel()
	p := proxied(t, 600)
	room, err := overload.Room(t.Context(), p.Addr(), time.Second)
	require.NoError(t, err)
	require.LessOrEqual(t, room, 1.2*300)
	require.Greater(t, room, 30.0, "a machine that is busy is slower still")
	require.Greater(t, p.Commands(), int64(2*30))
}

// What a client has sent is done although it has gone, as by a server that has it
// in its buffers.
func TestTheServerDoesWhatItsClientHasGivenUp(t *testing.T) {
	t.Parallel()
	p := proxied(t, 100)
	conn, err := net.Dial("tcp", p.Addr())
	require.NoError(t, err)
	for range 10 {
		_, err = conn.Write([]byte("*2\r\n$4\r\nINCR\r\n$1\r\nn\r\n"))
		require.NoError(t, err)
	}
	require.NoError(t, conn.Close())
	c := client(t, p)
	require.Eventually(t, func() bool { return c.Get(t.Context(), "n").Val() == "10" }, 10*time.Second, 20*time.Millisecond)
}

func TestSilenceKillsTheConnectionsThatSpoke(t *testing.T) {
	t.Parallel()
	p := proxied(t, 0)
	idle, err := net.Dial("tcp", p.Addr())
	require.NoError(t, err)
	defer idle.Close()
	c := client(t, p)
	require.NoError(t, c.Ping(t.Context()).Err())

	p.Silence()
	spoke, err := net.Dial("tcp", p.Addr())
	require.NoError(t, err)
	defer spoke.Close()
	_, err = spoke.Write([]byte("*1\r\n$4\r\nPING\r\n"))
	require.NoError(t, err)
	var timeout net.Error
	require.ErrorAs(t, c.Ping(t.Context()).Err(), &timeout)

	p.Speak()
	require.Eventually(t, func() bool { return c.Ping(t.Context()).Err() == nil }, 10*time.Second, time.Millisecond)
	_, err = idle.Write([]byte("*1\r\n$4\r\nPING\r\n"))
	require.NoError(t, err)
	line, err := bufio.NewReader(idle).ReadString('\n')
	require.NoError(t, err)
	require.Equal(t, "+PONG\r\n", line)
	require.NoError(t, spoke.SetReadDeadline(time.Now().Add(50*time.Millisecond)))
	_, err = spoke.Read(make([]byte, 1))
	require.ErrorAs(t, err, &timeout, "what was swallowed never comes")
}
