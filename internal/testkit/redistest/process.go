package redistest

import (
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"time"
)

// process is a running child that a goroutine reaps.
type process struct {
	cmd    *exec.Cmd
	exited chan struct{} // closed when it has been reaped
}

// spawn starts cmd in a way that it does not outlive this process.
//
// Linux delivers the parent-death signal when the *thread* that forked dies,
// and the Go runtime ends the thread of a goroutine that exits locked to it.
// So one goroutine, locked to its thread, forks the child and stays until the
// child is reaped: no other goroutine can end that thread. Leak checks in the
// middle of a test see that goroutine.
func spawn(cmd *exec.Cmd) (*process, error) {
	p := &process{cmd: cmd, exited: make(chan struct{})}
	cmd.SysProcAttr = dieWithParent()
	started := make(chan error)
	go func() {
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		err := cmd.Start()
		started <- err
		if err != nil {
			return
		}
		_ = cmd.Wait() // killed is the normal end
		close(p.exited)
	}()
	if err := <-started; err != nil {
		return nil, fmt.Errorf("redistest: start %s: %w", cmd.Path, err)
	}
	return p, nil
}

func (p *process) pid() int { return p.cmd.Process.Pid }

func (p *process) running() bool {
	select {
	case <-p.exited:
		return false
	default:
		return true
	}
}

// kill ends the process, stopped or not, and returns when it has been reaped.
func (p *process) kill() {
	_ = p.cmd.Process.Kill() // fails only if it has exited already
	<-p.exited
}

// signal panics on failure: a fault that was not injected must not look like
// one that was survived.
func (p *process) signal(s os.Signal) {
	if err := p.cmd.Process.Signal(s); err != nil {
		panic(fmt.Sprintf("redistest: signal %v to redis-server %d: %v", s, p.pid(), err))
	}
}

// pause stops the process and returns when it really stands still.
func (p *process) pause() {
	p.signal(stopSignal)
	for deadline := time.Now().Add(startTimeout); !stopped(p.pid()); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			panic(fmt.Sprintf("redistest: redis-server %d does not stop", p.pid()))
		}
	}
}

func (p *process) resume() { p.signal(contSignal) }
