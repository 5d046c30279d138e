//go:build !unix

package process

import (
	"errors"
	"syscall"
)

// Programs that tests pause and kill are only started on Unix: elsewhere they fail at their start.
const (
	stopSignal = syscall.Signal(0)
	contSignal = syscall.Signal(0)
)

// User is a user that a program runs as; nil is the user of the tests.
type User struct{}

// Unprivileged fails.
func Unprivileged() (*User, error) { return nil, errors.New("process: only on Unix") }

func (*User) own(string) error { return nil }

func attributes(*User) *syscall.SysProcAttr { return nil }
