package process

import (
	"context"
	"fmt"
	"io"
	"os/exec"
	"strings"
	"syscall"
)

// Ending is the way in which a program ends with its tests. A program that takes longer than ten
// seconds to end is killed.
type Ending string

const (
	// Killed is for programs that leave nothing behind (SIGKILL).
	Killed Ending = "KILL"
	// Quit is PostgreSQL's immediate shutdown, which frees its shared memory (SIGQUIT).
	Quit Ending = "QUIT"
)

func (e Ending) signal() syscall.Signal {
	return map[Ending]syscall.Signal{Killed: syscall.SIGKILL, Quit: syscall.SIGQUIT}[e]
}

// script is the program of a keeper. It ends the processes in the last line of its input: the first
// by the given signal, and all by SIGKILL if the signal is not enough. Then it removes the
// directory.
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

// keeper is a shell that waits for the end of its input. The input ends when
// this process ends, in whatever way: by a panic, a timeout, kill -9. The
// signal of the kernel at the death of a parent (PDEATHSIG) is not enough. It
// does not end the stopped children of a postmaster, does not remove the
// directory, exists on Linux only, and is sent even when a single thread of the
// parent ends.
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

// watch sets the processes that have to end with this process.
func (k keeper) watch(pids ...int) {
	_, _ = fmt.Fprintln(k.in, strings.Trim(fmt.Sprint(pids), "[]")) // the keeper does not end before its input
}

// end removes the directory, and returns when it is removed.
func (k keeper) end() {
	k.watch()
	_ = k.in.Close()
	_ = k.cmd.Wait()
}
