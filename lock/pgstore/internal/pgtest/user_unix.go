//go:build unix

package pgtest

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
	killSignal = syscall.SIGKILL
	// quitSignal is PostgreSQL's immediate shutdown, which gives back its shared memory.
	quitSignal = syscall.SIGQUIT
)

// user is who runs the servers. PostgreSQL and PgBouncer refuse to run as root.
type user struct{ credential *syscall.Credential } // nil: as we do

func unprivileged() (*user, error) {
	if os.Geteuid() != 0 {
		return &user{}, nil
	}
	for _, name := range []string{"postgres", "nobody"} {
		u, err := osuser.Lookup(name)
		if err != nil {
			continue
		}
		uid, err := strconv.ParseUint(u.Uid, 10, 32)
		if err != nil {
			continue
		}
		gid, err := strconv.ParseUint(u.Gid, 10, 32)
		if err != nil {
			continue
		}
		return &user{&syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}}, nil
	}
	return nil, errors.New("pgtest: PostgreSQL does not run as root, and there is no user postgres or nobody")
}

func (u *user) attributes() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Credential: u.credential, Setpgid: true} // Ctrl-C is for the tests: they end it
}

// own gives a file to the user.
func (u *user) own(path string) error {
	if u.credential == nil {
		return nil
	}
	if err := os.Chown(path, int(u.credential.Uid), int(u.credential.Gid)); err != nil {
		return fmt.Errorf("pgtest: %w", err)
	}
	return nil
}

func ownGroup() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setpgid: true} }

func send(pid int, s syscall.Signal) error { return syscall.Kill(pid, s) }
