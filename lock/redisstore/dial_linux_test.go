package redisstore_test

import (
	"context"
	"net"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/httplatch/httplatch/internal/redistest"
	"github.com/httplatch/httplatch/lock/redisstore"
)

func TestSocketsGiveUpUnacknowledgedBytes(t *testing.T) {
	t.Parallel()
	conn, err := redisstore.Dialer(patience, nil)(context.Background(), "tcp", redistest.Shared(t).Addr())
	require.NoError(t, err)
	defer func() { require.NoError(t, conn.Close()) }()
	tcp, ok := conn.(*net.TCPConn)
	require.True(t, ok)
	raw, err := tcp.SyscallConn()
	require.NoError(t, err)
	const tcpUserTimeout = 0x12
	var ms int
	require.NoError(t, raw.Control(func(fd uintptr) {
		ms, err = syscall.GetsockoptInt(int(fd), syscall.IPPROTO_TCP, tcpUserTimeout)
	}))
	require.NoError(t, err)
	require.Equal(t, 10_000, ms)
}
