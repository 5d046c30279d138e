package process

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
	parent int
	state  string // begins with the letter that ps shows
}

// table returns all processes.
func table() map[int]entry {
	stats, _ := filepath.Glob("/proc/[0-9]*/stat")
	var lines []string // "pid parent state"
	for _, path := range stats {
		text, err := os.ReadFile(path) //nolint:gosec // below /proc
		if err != nil {
			continue // it has ended
		}
		// pid (name) state parent ...: the name may contain anything.
		pid, after, _ := strings.Cut(string(text), " ")
		words := strings.Fields(after[strings.LastIndexByte(after, ')')+1:])
		lines = append(lines, pid+" "+words[1]+" "+words[0])
	}
	if len(stats) == 0 { // not Linux
		out, err := exec.CommandContext(context.Background(), "ps", "-A", "-o", "pid=,ppid=,stat=").Output()
		if err != nil {
			panic("process: ps: " + err.Error())
		}
		lines = strings.Split(strings.TrimSpace(string(out)), "\n")
	}
	entries := make(map[int]entry, len(lines))
	for _, line := range lines {
		words := strings.Fields(line)
		pid, _ := strconv.Atoi(words[0]) // digits
		parent, _ := strconv.Atoi(words[1])
		entries[pid] = entry{parent, words[2]}
	}
	return entries
}

// children returns the processes that pid has started.
func children(pid int) []int {
	var pids []int
	for child, e := range table() {
		if e.parent == pid {
			pids = append(pids, child)
		}
	}
	return pids
}

// all reports whether condition holds for the state of each process, "" if there is none.
func all(pids []int, condition func(state string) bool) bool {
	if len(pids) == 0 {
		return true
	}
	entries := table()
	for _, pid := range pids {
		if !condition(entries[pid].state) {
			return false
		}
	}
	return true
}

// still reports whether a process is stopped, or does not exist.
func still(state string) bool { return strings.HasPrefix(state, "T") || gone(state) }

// gone reports whether a process does not exist or is a zombie: an orphan may
// wait for its new parent to reap it, and in a container this may never happen.
func gone(state string) bool { return state == "" || strings.ContainsAny(state[:1], "ZX") }

// send ignores a process that has ended.
func send(pid int, s os.Signal) {
	if p, err := os.FindProcess(pid); err == nil {
		_ = p.Signal(s)
		_ = p.Release()
	}
}
