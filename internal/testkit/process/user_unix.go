//go:build unix

package process

import (
	"errors"
	"fmt"
	"os"
	osuser "os/user"
	"strconv"
	"syscall"
)

const (
	stopSignal = syscall.SIGSTOP
	contSignal = syscall.SIGCONT
)

// User is the user of a program; nil is the user of the tests.
type User struct{ credential syscall.Credential }

// Unprivileged returns the user for programs that refuse to run as root.
func Unprivileged() (*User, error) {
	if os.Geteuid() != 0 {
		return nil, nil //nolint:nilnil // the user of the tests
	}
	for _, name := range []string{"postgres", "nobody"} {
		u, err := osuser.Lookup(name)
		if err != nil {
			continue
		}
		uid, uidErr := strconv.ParseUint(u.Uid, 10, 32)
		gid, gidErr := strconv.ParseUint(u.Gid, 10, 32)
		if uidErr == nil && gidErr == nil {
			return &User{syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}}, nil
		}
	}
	return nil, errors.New("process: it does not run as root, and there is no user postgres or nobody")
}

// own gives a file to the user.
func (u *User) own(path string) error {
	if u == nil {
		return nil
	}
	if err := os.Chown(path, int(u.credential.Uid), int(u.credential.Gid)); err != nil {
		return fmt.Errorf("process: %w", err)
	}
	return nil
}

// attributes puts a child into its own group: Ctrl-C ends the tests, which then end the child.
func attributes(u *User) *syscall.SysProcAttr {
	a := &syscall.SysProcAttr{Setpgid: true}
	if u != nil {
		a.Credential = &u.credential
	}
	return a
}
