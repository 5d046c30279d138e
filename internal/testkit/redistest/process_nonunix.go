//go:build !unix

package redistest

import "syscall"

// No such signals here: sending them fails, and Stop and Cont panic.
const (
	stopSignal = syscall.Signal(0)
	contSignal = syscall.Signal(0)
)
