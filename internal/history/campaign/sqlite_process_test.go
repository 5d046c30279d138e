//go:build unix

package campaign_test

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"sync"
	"syscall"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/httplatch/httplatch/internal/testkit/once"
	"github.com/httplatch/httplatch/lock"
)

// request asks a process for one thing, in a line of JSON.
type request struct {
	ID     int
	Name   string
	Answer []byte
	Fault  fault
}

// reply is its line.
type reply struct {
	ID                    int
	Receipt               []byte
	Replayed, Ran         bool
	Error                 string
	NotApplied, Abandoned bool
	Struck                bool     // by the fault
	Paths                 []string // that the order has taken
}

// fileProcess is a process of the shop: this program, started with [fileVariable].
type fileProcess struct {
	w    *fileShop
	cmd  *exec.Cmd
	over chan struct{} // closed when all of its replies were read

	waker sync.WaitGroup

	mu      sync.Mutex
	in      io.Writer
	next    int
	waiting map[int]chan reply
	until   time.Time // it may be stopped; zero: it was not
}

func (w *fileShop) Open(*rand.Rand) once.Process {
	self, err := os.Executable()
	require.NoError(w.t, err)
	p := &fileProcess{w: w, cmd: exec.Command(self), over: make(chan struct{}), waiting: map[int]chan reply{}}
	p.cmd.Env = append(os.Environ(), fileVariable+"="+w.path, twinVariable+"="+w.twin)
	p.cmd.Stderr = os.Stderr
	p.in, err = p.cmd.StdinPipe()
	require.NoError(w.t, err)
	out, err := p.cmd.StdoutPipe()
	require.NoError(w.t, err)
	require.NoError(w.t, p.cmd.Start())
	go p.read(out)
	p.waker.Go(p.wake)
	return p
}

func (p *fileProcess) read(out io.Reader) {
	defer close(p.over)
	for lines := bufio.NewReader(out); ; {
		line, err := lines.ReadBytes('\n')
		if err != nil { // a part of a line was not given
			return
		}
		var r reply
		if err := json.Unmarshal(line, &r); err != nil {
			p.w.Complain("a process has written %q", line)
			return
		}
		p.mu.Lock()
		if c := p.waiting[r.ID]; c != nil {
			c <- r
			delete(p.waiting, r.ID)
		}
		p.mu.Unlock()
	}
}

func (p *fileProcess) Order(ctx context.Context, o *once.Order) once.Reply {
	q := request{Name: o.Name, Answer: o.Answer}
	if !p.w.Over() {
		q.Fault = draw(o.Dice)
	}
	if q.Fault.Do == doStop {
		p.stops(q.Fault.For)
	}
	got := make(chan reply, 1)
	p.mu.Lock()
	p.next++
	q.ID = p.next
	p.waiting[q.ID] = got
	err := json.NewEncoder(p.in).Encode(q) // an error of a process that has ended is noticed below
	p.mu.Unlock()
	if err != nil {
		p.Kill()
	}
	select {
	case r := <-got:
		return p.replied(&q, &r)
	case <-p.over:
		select {
		case r := <-got: // its last words
			return p.replied(&q, &r)
		default:
		}
		if q.Fault.Do == doKill {
			p.w.Faults.Add(q.Fault.name())
		}
		p.w.dies(o.Answer)
		return once.Reply{Err: once.ErrGone}
	case <-ctx.Done():
		return once.Reply{Err: context.Cause(ctx)}
	}
}

func (p *fileProcess) replied(q *request, r *reply) once.Reply {
	if r.Struck {
		p.w.Faults.Add(q.Fault.name())
	}
	for _, path := range r.Paths {
		p.w.Paths.Add(path)
		if r.Struck && q.Fault.Do == doStop && path == "committed" {
			p.w.Paths.Add("stopped, and committed")
		}
	}
	given := once.Reply{Receipt: r.Receipt, Replayed: r.Replayed, Ran: r.Ran}
	if r.Error != "" {
		given.Err = errors.New(r.Error)
	}
	if r.NotApplied {
		given.Err = errors.Join(given.Err, lock.ErrNotApplied)
	}
	if r.Abandoned {
		given.Err = errors.Join(given.Err, lock.ErrAbandoned)
	}
	return given
}

// stops lets the process be stopped for d, and woken afterwards.
func (p *fileProcess) stops(d time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.until = time.Now().Add(d)
}

// wake wakes the process, again and again, as its own SIGSTOP comes to it at any time.
func (p *fileProcess) wake() {
	often := time.NewTicker(10 * time.Millisecond)
	defer often.Stop()
	for {
		select {
		case <-p.over:
			return
		case <-often.C:
			p.mu.Lock()
			due := !p.until.IsZero() && time.Now().After(p.until)
			p.mu.Unlock()
			if due {
				_ = p.cmd.Process.Signal(syscall.SIGCONT)
			}
		}
	}
}

func (p *fileProcess) Kill() { _ = p.cmd.Process.Kill() }

func (p *fileProcess) Close(context.Context) {
	p.Kill()
	<-p.over
	p.waker.Wait()
	_ = p.cmd.Wait()
}
