package process

import (
	"context"
	"fmt"
	"io"
	"os/exec"
	"strings"
	"syscall"
)

// Ending is the way in which a program ends with its tests. One that takes longer than ten
// seconds is killed.
type Ending string

const (
	// Killed is for programs that leave nothing behind (SIGKILL).
	Killed Ending = "KILL"
	// Quit is PostgreSQL's immediate shutdown, which gives its shared memory back (SIGQUIT).
	Quit Ending = "QUIT"
)

func (e Ending) signal() syscall.Signal {
	return map[Ending]syscall.Signal{Killed: syscall.SIGKILL, Quit: syscall.SIGQUIT}[e]
}

// script is the program of a keeper: it ends the processes that the last line named,
// the first by a signal of its choice and all by SIGKILL if the signal is not enough,
// and removes the directory.
const script = `
dir=$1 signal=$2
trap '' INT TERM HUP
while read -r line; do pids=$line; done
if [ "$pids" ]; then
	set -- $pids
	kill -CONT "$@"
	kill -"$signal" "$1"
	n=0
	while kill -0 "$1" && [ $n -lt 100 ]; do sleep 0.1; n=$((n + 1)); done
	kill -KILL "$@"
fi 2>/dev/null
rm -rf "$dir"
`

// keeper is a shell that waits for the end of its input, which comes when this
// process ends, however it does: a panic, a timeout, kill -9. A signal of the
// kernel at the death of the parent (PDEATHSIG) is not enough: it does not
// reach the children of a postmaster that stand still, nor the directory, nor
// other systems than Linux, and it comes when a thread of the parent ends.
type keeper struct {
	cmd *exec.Cmd
	in  io.WriteCloser
}

func keep(dir string, ending Ending) (keeper, error) {
	cmd := exec.CommandContext(context.Background(), "/bin/sh", "-c", script, "keeper", dir, string(ending)) //nolint:gosec // constant
	cmd.SysProcAttr = attributes(nil)
	in, err := cmd.StdinPipe()
	if err != nil {
		return keeper{}, err //nolint:wrapcheck // by its caller
	}
	return keeper{cmd, in}, cmd.Start()
}

// watch names the processes that are to end with this one.
func (k keeper) watch(pids ...int) {
	_, _ = fmt.Fprintln(k.in, strings.Trim(fmt.Sprint(pids), "[]")) // it cannot be gone before its input ends
}

// end removes the directory, and returns when that is done.
func (k keeper) end() {
	k.watch()
	_ = k.in.Close()
	_ = k.cmd.Wait()
}
