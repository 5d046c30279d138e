package respproxy_test

import (
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/httplatch/httplatch/internal/testkit/redistest"
	"github.com/httplatch/httplatch/internal/testkit/respproxy"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(redistest.Main(m)) }

// readTimeout is the time for which a client with a short timeout waits for a
// reply that never comes. patience is the time for which a test waits for a
// reply that comes soon.
const (
	readTimeout = 500 * time.Millisecond
	soon        = 20 * time.Millisecond
	patience    = 20 * time.Second
)

// bare returns a client that sends every command once and returns its outcome.
func bare(t *testing.T, addr string) *redis.Client {
	t.Helper()
	return client(t, redis.Options{Addr: addr, ReadTimeout: patience})
}

// impatient is bare with a short read timeout, for replies that hang. It is connected.
func impatient(t *testing.T, addr string) *redis.Client {
	t.Helper()
	c := client(t, redis.Options{Addr: addr, ReadTimeout: readTimeout, WriteTimeout: patience, PoolTimeout: patience})
	goesOn(t, c)
	return c
}

// goesOn waits until a client, whose timeout may be too short for a busy machine,
// gets an answer.
func goesOn(t *testing.T, c *redis.Client) {
	t.Helper()
	require.Eventually(t, func() bool { return c.Ping(t.Context()).Err() == nil }, patience, time.Millisecond)
}

func client(t *testing.T, opt redis.Options) *redis.Client {
	t.Helper()
	opt.MaxRetries, opt.DialerRetries = -1, 1
	c := redis.NewClient(&opt)
	t.Cleanup(func() { _ = c.Close() }) // some tests close it before
	return c
}

// started is a proxy in front of the shared server.
func started(t *testing.T) (*redistest.Server, *respproxy.Proxy) {
	t.Helper()
	s := redistest.Shared(t)
	return s, respproxy.Start(t, s.Addr())
}

var keys atomic.Int64

// key returns a key that no other test, and no repetition of this test, uses.
func key(t *testing.T) string {
	t.Helper()
	return fmt.Sprintf("%s:%d", strings.ReplaceAll(t.Name(), " ", "_"), keys.Add(1))
}

// dial is a connection for RESP by hand.
func dial(t *testing.T, addr string) *net.TCPConn {
	t.Helper()
	conn, err := new(net.Dialer).DialContext(t.Context(), "tcp", addr)
	require.NoError(t, err)
	t.Cleanup(func() { _ = conn.Close() })
	require.NoError(t, conn.SetDeadline(time.Now().Add(patience)))
	tcp, ok := conn.(*net.TCPConn)
	require.True(t, ok)
	return tcp
}

func say(t *testing.T, conn net.Conn, text string) {
	t.Helper()
	_, err := conn.Write([]byte(text))
	require.NoError(t, err)
}

// hear reads exactly the expected bytes.
func hear(t *testing.T, conn net.Conn, want string) {
	t.Helper()
	got := make([]byte, len(want))
	n, err := io.ReadFull(conn, got)
	require.NoError(t, err, "after %q", got[:n])
	require.Equal(t, want, string(got))
}

func requireTimeout(t require.TestingT, err error, _ ...any) {
	var timeout net.Error
	require.ErrorAs(t, err, &timeout)
	require.True(t, timeout.Timeout(), "%v", err)
}

// requireResetOrEOF: over RESP3, go-redis peeks for push messages before it
// reads a reply; the peek takes the reset from the socket, which has only an
// end left for the read.
func requireResetOrEOF(t require.TestingT, err error, _ ...any) {
	require.True(t, errors.Is(err, io.EOF) || errors.Is(err, syscall.ECONNRESET), "%v", err)
}
