package pgtest

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"
)

// process is a running child that a goroutine reaps, with its own children.
type process struct {
	cmd    *exec.Cmd
	keeper *keeper
	exited chan struct{} // closed when it has been reaped
}

// spawn starts a program as u, in the keeper's directory, with its output in log.
func spawn(k *keeper, u *user, log, path string, args ...string) (*process, error) {
	out, err := os.Create(filepath.Join(k.dir, log)) //nolint:gosec // in our own directory
	if err != nil {
		return nil, fmt.Errorf("pgtest: %w", err)
	}
	defer func() { _ = out.Close() }()                              // the child has its own descriptor
	cmd := exec.CommandContext(context.Background(), path, args...) //nolint:gosec // the binary is the developer's choice
	cmd.Dir, cmd.Stdout, cmd.Stderr, cmd.SysProcAttr = k.dir, out, out, u.attributes()
	cmd.Env = environment()
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("pgtest: start %s: %w", path, err)
	}
	p := &process{cmd: cmd, keeper: k, exited: make(chan struct{})}
	k.watch(p.pid())
	go func() {
		defer close(p.exited)
		_ = cmd.Wait() // killed is the normal end
	}()
	return p, nil
}

// environment is ours without what PostgreSQL's programs would obey: PGDATA,
// PGPORT, PGUSER, and messages in another language.
func environment() []string {
	env := []string{"LC_ALL=C"}
	for _, v := range os.Environ() {
		if !strings.HasPrefix(v, "PG") && !strings.HasPrefix(v, "LC_") && !strings.HasPrefix(v, "LANG") {
			env = append(env, v)
		}
	}
	return env
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

// stop ends the process by s, and by SIGKILL if that takes too long.
func (p *process) stop(s os.Signal) {
	if !p.running() {
		return
	}
	p.resume() // what stands still does not see a signal
	_ = p.cmd.Process.Signal(s)
	timeout := time.NewTimer(startTimeout)
	defer timeout.Stop()
	select {
	case <-p.exited:
	case <-timeout.C:
		p.kill()
	}
	p.keeper.watch()
}

// kill ends the process and its children by SIGKILL, whether they stand still or
// not, and returns when they are gone.
func (p *process) kill() {
	if !p.running() {
		return
	}
	p.halt() // or it might start another child
	family := children(p.pid())
	for _, pid := range family {
		_ = send(pid, killSignal)
	}
	_ = p.cmd.Process.Kill()
	<-p.exited
	p.await(family, "is still there after SIGKILL", gone)
	p.keeper.watch()
}

// pause stops the process and its children (SIGSTOP), and returns when all of
// them stand still.
func (p *process) pause() {
	p.halt()
	family := children(p.pid())
	p.keeper.watch(append([]int{p.pid()}, family...)...)
	for _, pid := range family {
		_ = send(pid, stopSignal) // it may just have ended
	}
	p.await(family, "does not stop", func(pid int) bool { return stopped(pid) || gone(pid) })
}

// resume ends pause.
func (p *process) resume() {
	for _, pid := range children(p.pid()) {
		_ = send(pid, contSignal)
	}
	_ = p.cmd.Process.Signal(contSignal)
	p.keeper.watch(p.pid())
}

// halt stops the process alone.
func (p *process) halt() {
	if err := p.cmd.Process.Signal(stopSignal); err != nil && p.running() {
		panic(fmt.Sprintf("pgtest: cannot stop %s: %v", p.cmd.Path, err))
	}
	p.await([]int{p.pid()}, "does not stop", func(pid int) bool { return stopped(pid) || gone(pid) })
}

// await panics when it is in vain: a fault that was not injected must not look
// like one that was survived.
func (p *process) await(pids []int, complaint string, condition func(pid int) bool) {
	for _, pid := range pids {
		if !eventually(func() bool { return condition(pid) }) {
			panic(fmt.Sprintf("pgtest: process %d of %s %s", pid, p.cmd.Path, complaint))
		}
	}
}
