package redisstore

import (
	"syscall"
	"time"
)

// userTimeout is how long sent bytes may stay unacknowledged. Past it the
// kernel gives up a connection, even one that was closed: otherwise it would
// keep delivering what was written to it, a claim that no caller waits for, for
// as long as two minutes.
const userTimeout = 10 * time.Second

// openLag is userTimeout, and some for what the network has taken.
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
