//go:build unix

package walk

import (
	"os/exec"
	"syscall"
)

// inOneGroup has all processes of the shell killed with it: without job control, they are of its
// group.
func inOneGroup(shell *exec.Cmd) {
	shell.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	shell.Cancel = func() error { return syscall.Kill(-shell.Process.Pid, syscall.SIGKILL) }
}
