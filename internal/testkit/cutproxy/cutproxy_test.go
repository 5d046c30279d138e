package cutproxy_test

import (
	"fmt"
	"io"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/httplatch/httplatch/internal/testkit/cutproxy"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const (
	question = "what is there?"
	reply    = "tea, and nothing else"
)

// startServer answers each connection that has sent the question. It returns the bytes that each
// connection has sent.
func startServer(t *testing.T) (addr string, received <-chan string) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	all := make(chan string, 10)
	var serving sync.WaitGroup
	serving.Go(func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			got := make([]byte, len(question))
			n, _ := io.ReadFull(conn, got)
			all <- string(got[:n])
			if n == len(question) {
				_, _ = io.WriteString(conn, reply)
			}
			conn.Close()
		}
	})
	t.Cleanup(func() { l.Close(); serving.Wait() })
	return l.Addr().String(), all
}

// ask returns the bytes that came back before the end of the connection.
func ask(t *testing.T, p *cutproxy.Proxy) string {
	t.Helper()
	conn, err := net.Dial("tcp", strings.TrimPrefix(p.URL(), "http://"))
	require.NoError(t, err)
	defer conn.Close()
	_, err = io.WriteString(conn, question)
	require.NoError(t, err)
	got, _ := io.ReadAll(conn) // an end or a reset
	return string(got)
}

// TestCut: the given number of bytes arrives, in the direction that is cut, and on one connection
// only.
func TestCut(t *testing.T) {
	t.Parallel()
	addr, received := startServer(t)
	p := cutproxy.Start(t, addr)
	for n := range len(question) + 1 {
		p.Cut(cutproxy.Request, n)
		require.True(t, p.Waiting())
		require.Empty(t, ask(t, p), n)
		require.Equal(t, question[:n], <-received)
		require.False(t, p.Waiting())
	}
	for n := range len(reply) + 1 {
		p.Cut(cutproxy.Response, n)
		require.Equal(t, reply[:n], ask(t, p))
		require.Equal(t, question, <-received)
		require.False(t, p.Waiting())
	}
	p.Count()
	require.Equal(t, reply, ask(t, p))
	require.Equal(t, question, <-received)
	request, response := p.Counted()
	require.Equal(t, fmt.Sprint(len(question), len(reply)), fmt.Sprint(request, response))
}

// TestClose ends open connections, and connections to a server that does not run.
func TestClose(t *testing.T) {
	t.Parallel()
	addr, _ := startServer(t)
	p := cutproxy.Start(t, addr)
	conn, err := net.Dial("tcp", strings.TrimPrefix(p.URL(), "http://"))
	require.NoError(t, err)
	defer conn.Close()
	_, err = io.WriteString(conn, "w")
	require.NoError(t, err)
	require.Eventually(t, func() bool { request, _ := p.Counted(); return request == 1 }, 10*time.Second, time.Millisecond)
	p.Close()
	_, err = conn.Read(make([]byte, 1))
	require.Error(t, err)

	nothing, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	nothing.Close()
	require.Empty(t, ask(t, cutproxy.Start(t, nothing.Addr().String())))
}
