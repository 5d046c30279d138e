package relay_test

import (
	"net"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/httplatch/httplatch/internal/testkit/relay"
)

// TestDownRefusesBesideAFork: a child process between fork and exec has a copy of the listening
// socket, to which clients could connect.
func TestDownRefusesBesideAFork(t *testing.T) {
	r, err := relay.Start(0, "", nil)
	require.NoError(t, err)
	defer r.Close()
	addr, err := net.ResolveTCPAddr("tcp", r.Addr())
	require.NoError(t, err)
	copied := copySocket(t, addr.Port)
	defer func() { require.NoError(t, syscall.Close(copied)) }()

	r.Down()
	_, err = net.DialTCP("tcp", nil, addr)
	require.ErrorIs(t, err, syscall.ECONNREFUSED)
	require.NoError(t, r.Up())
	conn, err := net.DialTCP("tcp", nil, addr)
	require.NoError(t, err)
	require.NoError(t, conn.Close())
}

// copySocket returns a copy of the socket of this process that listens at port.
func copySocket(t *testing.T, port int) int {
	t.Helper()
	for fd := range 1024 {
		if name, err := syscall.Getsockname(fd); err == nil {
			if in4, ok := name.(*syscall.SockaddrInet4); ok && in4.Port == port {
				copied, err := syscall.Dup(fd)
				require.NoError(t, err)
				return copied
			}
		}
	}
	require.Fail(t, "no socket listens at the port")
	return 0
}
