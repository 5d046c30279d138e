package redisstore

import (
	"syscall"
	"time"
)

// userTimeout is the longest time for which sent bytes may stay unacknowledged. After it, the
// kernel gives up a connection, even a closed one. Without it, the kernel could deliver a claim
// two minutes late, when no caller waits for it.
const userTimeout = 10 * time.Second

// openLag is userTimeout, and a margin for packets in the network.
const openLag = userTimeout + 5*time.Second

// tcpUserTimeout is TCP_USER_TIMEOUT, which package syscall does not have.
const tcpUserTimeout = 0x12

// control sets up a socket before it connects.
func control(network, _ string, c syscall.RawConn) error {
	if network == "unix" {
		return nil
	}
	var failed error
	err := c.Control(func(fd uintptr) {
		failed = syscall.SetsockoptInt(int(fd), syscall.IPPROTO_TCP, tcpUserTimeout, int(userTimeout.Milliseconds()))
	})
	if err != nil {
		return err
	}
	return failed
}
