package redisstore_test

import (
	"os"
	"strconv"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/httplatch/httplatch/internal/testkit/must"
	"github.com/httplatch/httplatch/internal/testkit/redistest"
	"github.com/httplatch/httplatch/internal/testkit/respproxy"
)

func TestSocketsGiveUpUnacknowledgedBytes(t *testing.T) {
	t.Parallel()
	p := respproxy.Start(t, redistest.Shared(t).Addr())
	open(t, p.URL())
	const tcpUserTimeout = 0x12
	files := must.Get(os.ReadDir("/proc/self/fd"))(t)
	found := 0
	for _, f := range files {
		fd := must.Get(strconv.Atoi(f.Name()))(t)
		if peer, err := syscall.Getpeername(fd); err != nil || portOf(peer) != p.Port() {
			continue
		}
		ms := must.Get(syscall.GetsockoptInt(fd, syscall.IPPROTO_TCP, tcpUserTimeout))(t)
		require.Equal(t, 10_000, ms)
		found++
	}
	require.NotZero(t, found, "Open has dialled")
}

func portOf(addr syscall.Sockaddr) int {
	switch addr := addr.(type) {
	case *syscall.SockaddrInet4:
		return addr.Port
	case *syscall.SockaddrInet6:
		return addr.Port
	}
	return 0
}
