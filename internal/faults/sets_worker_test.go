package faults_test

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/httplatch/httplatch/internal/testkit/respproxy"
)

// setWorker is a process that works on tickets, and is killed and started again. Its methods are safe for
// concurrent use.
type setWorker struct {
	*host

	sets *setCampaign

	mu  sync.Mutex
	run *workerRun // nil between two processes
}

// workerRun is one process of a worker.
type workerRun struct {
	cmd  *exec.Cmd
	in   io.WriteCloser
	gone chan struct{} // closed when its last line has been read

	mu      sync.Mutex
	leaves  map[int]func()
	answers map[int][]chan bool // by holder
}

func newSetWorker(s *setCampaign, n int) *setWorker {
	c := s.campaign
	return &setWorker{host: &host{c: c, n: n, proxy: respproxy.Start(c.t, c.server.Addr()), calm: setCalm}, sets: s}
}

// start starts the process, if it does not run.
func (w *setWorker) start() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.run != nil {
		return nil
	}
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), childRole+"=sets", childURL+"="+w.c.server.URL(), childProxy+"="+w.proxy.Addr())
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		return err
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return err
	}
	if err := cmd.Start(); err != nil {
		return err
	}
	r := &workerRun{cmd: cmd, in: in, gone: make(chan struct{}), leaves: make(map[int]func()), answers: make(map[int][]chan bool)}
	w.run = r
	go func() {
		defer close(r.gone)
		for lines := bufio.NewScanner(out); lines.Scan(); {
			w.hear(r, lines.Text())
		}
		r.end()
	}()
	return nil
}

// hear does what a line of the process says.
func (w *setWorker) hear(r *workerRun, line string) {
	verb, rest, _ := strings.Cut(line, " ")
	words := strings.Fields(rest)
	id := 0
	if len(words) > 0 {
		id, _ = strconv.Atoi(words[0])
	}
	switch verb {
	case "ready":
	case "count":
		w.c.outcomes.add("in a worker: "+rest, 1)
	case "violated":
		promise, text, _ := strings.Cut(rest, ": ")
		w.c.book.violated(promise, "%s", text)
	case "resumed":
		w.sets.book.wasResumed(id)
	case "held":
		n, _ := strconv.Atoi(words[1])
		leave := w.sets.book.enter(n, strings.Split(words[2], ","), func() bool { return r.valid(id) })
		r.mu.Lock()
		r.leaves[id] = leave
		r.mu.Unlock()
	case "left":
		r.mu.Lock()
		leave := r.leaves[id]
		delete(r.leaves, id)
		r.mu.Unlock()
		leave()
	case "valid":
		r.mu.Lock()
		asked := r.answers[id]
		r.answers[id] = asked[1:]
		r.mu.Unlock()
		asked[0] <- words[1] == "true"
	default:
		w.c.t.Errorf("a worker says %q", line)
	}
}

// valid asks the process whether a holder is valid. A process that was killed holds nothing; one that
// was stopped answers when it goes on.
func (r *workerRun) valid(id int) bool {
	answer := make(chan bool, 1)
	r.mu.Lock()
	r.answers[id] = append(r.answers[id], answer)
	_, err := fmt.Fprintf(r.in, "valid %d\n", id)
	r.mu.Unlock()
	if err != nil {
		return false
	}
	select {
	case valid := <-answer:
		return valid
	case <-r.gone:
		return false
	}
}

// end ends the work of a process that is gone.
func (r *workerRun) end() {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, leave := range r.leaves {
		leave()
	}
}

// deliver sends the process a ticket, if it runs.
func (w *setWorker) deliver(id int, ticket, key string, work time.Duration) {
	w.mu.Lock()
	r := w.run
	w.mu.Unlock()
	if r == nil {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	_, _ = fmt.Fprintf(r.in, "resume %d %s %v %s\n", id, key, work, ticket) // a killed one gets none
}

// kill ends the process by SIGKILL, stopped or not.
func (w *setWorker) kill() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.run == nil {
		return
	}
	_ = w.run.cmd.Process.Kill()
	<-w.run.gone
	_ = w.run.cmd.Wait()
	w.run = nil
}

// pauses stops the process for d.
func (w *setWorker) pauses(d time.Duration) {
	w.mu.Lock()
	r := w.run
	w.mu.Unlock()
	if r == nil || r.cmd.Process.Signal(syscall.SIGSTOP) != nil {
		return
	}
	w.pause(d)
	_ = r.cmd.Process.Signal(syscall.SIGCONT)
}

// leaves ends the process at the end of its work, and returns what it said.
func (w *setWorker) leaves() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.run == nil {
		return nil
	}
	_ = w.run.in.Close()
	late := time.AfterFunc(time.Minute, func() { _ = w.run.cmd.Process.Kill() })
	defer late.Stop()
	<-w.run.gone
	err := w.run.cmd.Wait()
	w.run = nil
	return err
}
