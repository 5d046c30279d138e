//go:build unix

package process

import "syscall"

// unused reports whether a program can listen on a port of 127.0.0.1. It binds the port and never listens: a process
// that is being forked would hold a copy of a listener, whose backlog takes connections until the exec.
func unused(port int) bool {
	syscall.ForkLock.RLock()
	defer syscall.ForkLock.RUnlock()
	fd, err := syscall.Socket(syscall.AF_INET, syscall.SOCK_STREAM, 0)
	if err != nil {
		return false
	}
	defer func() { _ = syscall.Close(fd) }()
	// Connections that wait after their end do not count, as for the program.
	_ = syscall.SetsockoptInt(fd, syscall.SOL_SOCKET, syscall.SO_REUSEADDR, 1)
	return syscall.Bind(fd, &syscall.SockaddrInet4{Port: port, Addr: [4]byte{127, 0, 0, 1}}) == nil
}
