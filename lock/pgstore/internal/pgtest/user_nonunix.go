//go:build !unix

package pgtest

import (
	"errors"
	"syscall"
)

// No such signals here, and no tests with servers: they fail at their start.
const (
	stopSignal = syscall.Signal(0)
	contSignal = syscall.Signal(0)
	killSignal = syscall.SIGKILL
	quitSignal = syscall.SIGTERM
)

var errUnsupported = errors.New("pgtest: servers are only started on Unix")

type user struct{}

func unprivileged() (*user, error) { return nil, errUnsupported }

func (*user) attributes() *syscall.SysProcAttr { return nil }

func (*user) own(string) error { return errUnsupported }

func ownGroup() *syscall.SysProcAttr { return nil }

func send(int, syscall.Signal) error { return errUnsupported }
