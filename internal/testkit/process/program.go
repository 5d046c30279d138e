// Package process runs the server programs of tests. A program runs in its own directory, can be
// paused, killed and started again together with its children, and ends with the tests, in whatever
// way the tests end.
package process

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"
	"time"
)

// Patience is the time that a program may take to start, to stop and to end.
const Patience = 30 * time.Second

// Program is a server program, which runs or has been killed. Its methods are safe for
// concurrent use.
type Program struct {
	// Dir is its working directory, which is removed with it.
	Dir string

	name   string
	ending Ending
	user   *User
	keeper keeper

	mu      sync.Mutex
	current *run
}

// run is one process of a program.
type run struct {
	cmd    *exec.Cmd
	exited chan struct{} // closed when it has been reaped
}

func (r *run) runs() bool {
	select {
	case <-r.exited:
		return false
	default:
		return true
	}
}

// New makes a temporary directory for a program that runs as user. nil is the user of the tests.
// The caller has to call Remove.
func New(name string, ending Ending, user *User) (*Program, error) {
	dir, err := os.MkdirTemp("", name+"-") // not TB.TempDir: its parents are closed to other users, and too long for a unix socket's address
	if err != nil {
		return nil, fmt.Errorf("process: %w", err)
	}
	p := &Program{Dir: dir, name: name, ending: ending, user: user}
	if err = user.own(dir); err == nil {
		p.keeper, err = keep(dir, ending)
	}
	if err != nil {
		_ = os.RemoveAll(dir)
		return nil, fmt.Errorf("process: %s: %w", name, err)
	}
	return p, nil
}

// Own gives a file to the user of the program.
func (p *Program) Own(path string) error { return p.user.own(path) }

// Prepare makes cmd run in the program's directory as the program's user.
func (p *Program) Prepare(cmd *exec.Cmd) {
	cmd.Dir, cmd.SysProcAttr = p.Dir, attributes(p.user)
}

// Start starts the program, with its output in its log, and returns when ready returns true. If the
// program ends before, or is not ready within [Patience], the error has its log.
func (p *Program) Start(cmd *exec.Cmd, ready func(pid int) bool) error {
	log, err := os.Create(p.log())
	if err != nil {
		return fmt.Errorf("process: %w", err)
	}
	defer func() { _ = log.Close() }() // the child has its own descriptor
	p.Prepare(cmd)
	cmd.Stdout, cmd.Stderr = log, log
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("process: start %s: %w", p.name, err)
	}
	r := &run{cmd: cmd, exited: make(chan struct{})}
	p.mu.Lock()
	p.current = r
	p.mu.Unlock()
	p.keeper.watch(cmd.Process.Pid)
	go func() {
		defer close(r.exited)
		_ = cmd.Wait() // killed is the normal end
	}()
	if !Eventually(func() bool { return !r.runs() || ready(cmd.Process.Pid) }) || !r.runs() {
		p.Kill()
		return fmt.Errorf("process: %s did not start: %v; its log:\n%s", p.name, cmd.ProcessState, p.Log())
	}
	return nil
}

// StartAtFreePort calls start with a free port, and returns the port. A program that does not ask
// [FreePort] may take the port first, so the first failures are not final.
func StartAtFreePort(start func(port int) error) (port int, err error) {
	for range 5 {
		if port, err = FreePort(); err != nil {
			return 0, err
		}
		if err = start(port); err == nil {
			return port, nil
		}
	}
	return 0, err
}

// Restart calls start to start the program again, or ends the test. A process that still runs is
// killed first.
func (p *Program) Restart(tb testing.TB, start func() error) {
	tb.Helper()
	p.Kill()
	var err error
	for range 20 { // a short-lived socket of another process may occupy the port
		if err = start(); err == nil {
			return
		}
		time.Sleep(100 * time.Millisecond)
	}
	tb.Fatal(err)
}

func (p *Program) log() string { return filepath.Join(p.Dir, p.name+".log") }

// Log returns the output of the program since its last start.
func (p *Program) Log() string {
	text, err := os.ReadFile(p.log())
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return err.Error()
	}
	return string(text)
}

func (p *Program) running() (r *run, ok bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.current, p.current != nil && p.current.runs()
}

// Running reports whether the process exists, paused or not.
func (p *Program) Running() bool {
	_, ok := p.running()
	return ok
}

// State describes the end of the last process.
func (p *Program) State() string {
	r, running := p.running()
	if r == nil || running {
		return "it has not ended"
	}
	return r.cmd.ProcessState.String()
}

// Kill ends the process and its children by SIGKILL, paused or not, and returns when they
// are gone. On a killed program it does nothing.
func (p *Program) Kill() {
	r, ok := p.running()
	if !ok {
		return
	}
	p.halt(r) // otherwise it might start another child
	family := children(r.cmd.Process.Pid)
	for _, pid := range family {
		send(pid, os.Kill)
	}
	_ = r.cmd.Process.Kill()
	<-r.exited
	p.await("is still there after SIGKILL", gone, family...)
	p.keeper.watch()
}

// Pause stops the process and its children (SIGSTOP) until [Program.Resume], and returns when all
// of them have stopped.
func (p *Program) Pause() {
	r := p.existing()
	p.halt(r)
	family := children(r.cmd.Process.Pid)
	p.keeper.watch(append([]int{r.cmd.Process.Pid}, family...)...)
	for _, pid := range family {
		send(pid, stopSignal) // it may just have ended
	}
	p.await("does not stop", still, family...)
}

// Resume ends Pause.
func (p *Program) Resume() { p.resume(p.existing()) }

func (p *Program) resume(r *run) {
	for _, pid := range append(children(r.cmd.Process.Pid), r.cmd.Process.Pid) {
		send(pid, contSignal)
	}
	p.keeper.watch(r.cmd.Process.Pid)
}

// existing returns the process, and panics if there is none: a fault that was not injected must not
// look like a fault that was survived.
func (p *Program) existing() *run {
	r, ok := p.running()
	if !ok {
		panic(fmt.Sprintf("process: %s does not run", p.name))
	}
	return r
}

// Remove ends the program and removes its directory.
func (p *Program) Remove() {
	if r, ok := p.running(); ok && p.ending != Killed {
		p.resume(r) // a stopped process handles no signal
		send(r.cmd.Process.Pid, p.ending.signal())
		Eventually(func() bool { return !r.runs() })
	}
	p.Kill()
	p.keeper.end()
}

// halt stops only the process itself, and panics if it cannot.
func (p *Program) halt(r *run) {
	if err := r.cmd.Process.Signal(stopSignal); err != nil && r.runs() {
		panic(fmt.Sprintf("process: cannot stop %s: %v", p.name, err))
	}
	p.await("does not stop", still, r.cmd.Process.Pid)
}

func (p *Program) await(complaint string, condition func(state string) bool, pids ...int) {
	if !Eventually(func() bool { return all(pids, condition) }) {
		panic(fmt.Sprintf("process: one of %v of %s %s", pids, p.name, complaint))
	}
}

// Eventually polls until condition is met, and returns false if that takes longer than
// [Patience].
func Eventually(condition func() bool) bool {
	for deadline := time.Now().Add(Patience); !condition(); time.Sleep(2 * time.Millisecond) {
		if time.Now().After(deadline) {
			return false
		}
	}
	return true
}
