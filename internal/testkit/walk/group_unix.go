//go:build unix

package walk

import (
	"os/exec"
	"syscall"
)

// inOneGroup makes the end of the shell kill all its processes: without job control, they are in
// its group.
func inOneGroup(shell *exec.Cmd) {
	shell.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	shell.Cancel = func() error { return syscall.Kill(-shell.Process.Pid, syscall.SIGKILL) }
}
