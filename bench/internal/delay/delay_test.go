package delay_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/httplatch/httplatch/bench/internal/delay"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const late = 20 * time.Millisecond

// echo is a server that sends back what it gets, until the client ends.
func echo(t *testing.T) (addr string) {
	t.Helper()
	var lc net.ListenConfig
	l, err := lc.Listen(t.Context(), "tcp", "127.0.0.1:0")
	require.NoError(t, err)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				_, _ = io.Copy(conn, conn)
				_ = conn.Close()
			}()
		}
	}()
	t.Cleanup(func() {
		require.NoError(t, l.Close())
		<-ended
	})
	return l.Addr().String()
}

func listen(t *testing.T, to string) *delay.Proxy {
	t.Helper()
	p, err := delay.Listen(context.WithoutCancel(t.Context()), to, late)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, p.Close()) })
	return p
}

func dial(t *testing.T, p *delay.Proxy) *net.TCPConn {
	t.Helper()
	var d net.Dialer
	conn, err := d.DialContext(t.Context(), "tcp", p.Addr())
	require.NoError(t, err)
	t.Cleanup(func() { _ = conn.Close() })
	tcp, ok := conn.(*net.TCPConn)
	require.True(t, ok)
	return tcp
}

func TestARoundTripIsLateTwice(t *testing.T) {
	conn := dial(t, listen(t, echo(t)))
	in := bufio.NewReader(conn)
	for i := range 3 {
		began := time.Now()
		_, err := fmt.Fprintf(conn, "%d\n", i)
		require.NoError(t, err)
		line, err := in.ReadString('\n')
		require.NoError(t, err)
		require.Equal(t, fmt.Sprintf("%d\n", i), line)
		require.GreaterOrEqual(t, time.Since(began), 2*late)
	}
}

// What is sent while other data is on its way is not late for it: a hundred lines
// that are sent one after the other arrive before three could have gone to and
// fro, on a busy machine too.
func TestWhatIsSentMeanwhileIsOnItsWayToo(t *testing.T) {
	const lines = 100
	conn := dial(t, listen(t, echo(t)))
	in := bufio.NewReader(conn)
	began := time.Now()
	for i := range lines {
		_, err := fmt.Fprintf(conn, "%d\n", i)
		require.NoError(t, err)
	}
	for i := range lines {
		line, err := in.ReadString('\n')
		require.NoError(t, err)
		require.Equal(t, fmt.Sprintf("%d\n", i), line)
	}
	require.Less(t, time.Since(began), lines*late)
}

func TestAnEndArrivesAfterWhatWasSent(t *testing.T) {
	conn := dial(t, listen(t, echo(t)))
	_, err := io.WriteString(conn, "the last")
	require.NoError(t, err)
	require.NoError(t, conn.CloseWrite())
	all, err := io.ReadAll(conn)
	require.NoError(t, err)
	require.Equal(t, "the last", string(all))
}

func TestCloseEndsConnections(t *testing.T) {
	p, err := delay.Listen(t.Context(), echo(t), late)
	require.NoError(t, err)
	conn := dial(t, p)
	_, err = io.WriteString(conn, "x")
	require.NoError(t, err)
	require.NoError(t, p.Close())
	_, err = io.ReadAll(conn)
	if err != nil {
		var broken *net.OpError
		require.ErrorAs(t, err, &broken)
	}
}

func TestNoServer(t *testing.T) {
	conn := dial(t, listen(t, "127.0.0.1:1"))
	_, err := io.ReadAll(conn)
	if err != nil {
		var broken *net.OpError
		require.ErrorAs(t, err, &broken)
	}
}
