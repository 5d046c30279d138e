package relay

import (
	"net"
	"syscall"
)

// stopListening ends what Close alone does not: a child process between fork and exec has the
// socket, too, and clients could connect until it has closed it. Other systems do not shut down
// a socket that listens.
func stopListening(ln *net.TCPListener) {
	conn, err := ln.SyscallConn()
	if err != nil {
		return // it is closed
	}
	_ = conn.Control(func(fd uintptr) { _ = syscall.Shutdown(int(fd), syscall.SHUT_RD) })
}
