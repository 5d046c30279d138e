package pgtest

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
)

// entry is a line of the system's list of processes.
type entry struct {
	pid, parent int
	state       string // begins with the letter that ps shows
}

// processes are all that there are.
func processes() []entry {
	stats, _ := filepath.Glob("/proc/[0-9]*/stat")
	if len(stats) == 0 {
		return processesOfPs()
	}
	var list []entry
	for _, path := range stats {
		if e, ok := entryOfProc(path); ok {
			list = append(list, e)
		}
	}
	return list
}

// entryOfProc reads "pid (name) state parent ...". The name may contain anything.
func entryOfProc(path string) (entry, bool) {
	stat, err := os.ReadFile(path) //nolint:gosec // below /proc
	if err != nil {
		return entry{}, false // it has ended
	}
	before, after, _ := strings.Cut(string(stat), " ")
	words := strings.Fields(after[strings.LastIndexByte(after, ')')+1:])
	if len(words) < 2 {
		return entry{}, false
	}
	return newEntry(before, words[1], words[0])
}

// processesOfPs is for systems without /proc.
func processesOfPs() []entry {
	out, err := exec.CommandContext(context.Background(), "ps", "-A", "-o", "pid=,ppid=,stat=").Output()
	if err != nil {
		panic("pgtest: ps: " + err.Error())
	}
	var list []entry
	for line := range strings.Lines(string(out)) {
		words := strings.Fields(line)
		if len(words) < 3 {
			continue
		}
		if e, ok := newEntry(words[0], words[1], words[2]); ok {
			list = append(list, e)
		}
	}
	return list
}

func newEntry(pid, parent, state string) (entry, bool) {
	p, err := strconv.Atoi(pid)
	if err != nil {
		return entry{}, false
	}
	pp, err := strconv.Atoi(parent)
	return entry{pid: p, parent: pp, state: state}, err == nil
}

// children are the processes that pid has started.
func children(pid int) []int {
	var pids []int
	for _, e := range processes() {
		if e.parent == pid {
			pids = append(pids, e.pid)
		}
	}
	return pids
}

func stopped(pid int) bool { return strings.HasPrefix(stateOf(pid), "T") }

// gone is also true of a zombie: an orphan may wait for its new parent to reap
// it, and in a container that can be never.
func gone(pid int) bool {
	state := stateOf(pid)
	return state == "" || strings.HasPrefix(state, "Z") || strings.HasPrefix(state, "X")
}

// stateOf is empty if there is no such process.
func stateOf(pid int) string {
	if e, ok := entryOfProc("/proc/" + strconv.Itoa(pid) + "/stat"); ok {
		return e.state
	}
	if _, err := os.Stat("/proc/self/stat"); err == nil {
		return ""
	}
	for _, e := range processesOfPs() {
		if e.pid == pid {
			return e.state
		}
	}
	return ""
}
