//go:build !unix

package process

import (
	"errors"
	"syscall"
)

// Programs that tests pause and kill need Unix: on other systems they fail at their start.
const (
	stopSignal = syscall.Signal(0)
	contSignal = syscall.Signal(0)
)

// User is the user of a program; nil is the user of the tests.
type User struct{}

// Unprivileged fails.
func Unprivileged() (*User, error) { return nil, errors.New("process: only on Unix") }

func (*User) own(string) error { return nil }

func attributes(*User) *syscall.SysProcAttr { return nil }

func unused(int) bool { return true }
