package pgtest

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"time"
)

// keep is the script of a keeper: it ends the processes that the last line named,
// the first by a signal of its choice and all by SIGKILL if that is not enough,
// and removes the directory.
const keep = `
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
// kernel at the death of the parent (PDEATHSIG) is not enough here: it does not
// reach the children of a postmaster that stand still, nor the directory, nor
// other systems than Linux.
type keeper struct {
	dir string
	cmd *exec.Cmd
	in  io.WriteCloser
}

// newKeeper makes a temporary directory that u owns, and its keeper. signal is
// the name of one, without "SIG".
func newKeeper(u *user, signal string) (*keeper, error) {
	dir, err := os.MkdirTemp("", "pgtest-") // not TB.TempDir: its parents are closed to other users
	if err != nil {
		return nil, fmt.Errorf("pgtest: %w", err)
	}
	k := &keeper{dir: dir, cmd: exec.CommandContext(context.Background(), "/bin/sh", "-c", keep, "pgtest-keeper", dir, signal)} //nolint:gosec // constant
	k.cmd.SysProcAttr = ownGroup()                                                                                              // Ctrl-C is not for it
	if err = u.own(dir); err == nil {
		if k.in, err = k.cmd.StdinPipe(); err == nil {
			err = k.cmd.Start()
		}
	}
	if err != nil {
		_ = os.RemoveAll(dir)
		return nil, fmt.Errorf("pgtest: keeper of %s: %w", dir, err)
	}
	return k, nil
}

// watch names the processes that are to end with this one.
func (k *keeper) watch(pids ...int) {
	words := make([]string, len(pids))
	for i, pid := range pids {
		words[i] = strconv.Itoa(pid)
	}
	_, _ = io.WriteString(k.in, strings.Join(words, " ")+"\n") // it cannot be gone before its input ends
}

// end removes the directory, and returns when that is done.
func (k *keeper) end() {
	k.watch()
	_ = k.in.Close()
	_ = k.cmd.Wait()
}

// eventually polls until condition is met; false if that takes longer than startTimeout.
func eventually(condition func() bool) bool {
	for deadline := time.Now().Add(startTimeout); !condition(); time.Sleep(2 * time.Millisecond) {
		if time.Now().After(deadline) {
			return false
		}
	}
	return true
}
