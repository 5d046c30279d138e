package suite

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/httplatch/httplatch/internal/testkit/redistest"
)

// Killed is the part in which an order desk is killed, a hundred times, while it works on an
// order: how long its user has to wait for another desk. Cases are how old the order was.
const Killed = "killed desk"

// Metrics of Killed.
const (
	Freed = "until the user can order, s"
	Desk  = "the order desk"
)

const (
	kills     = 100
	atOnce    = 10
	oldestAge = 3 * time.Second // more than the first lease goes without a renewal
	asksEvery = 50 * time.Millisecond
	mostFreed = time.Minute
)

func measureKilled(ctx context.Context, b *bench) error {
	program := filepath.Join(os.TempDir(), fmt.Sprintf("httplatch-desk-%d", os.Getpid()))
	build := exec.CommandContext(ctx, "go", "build", "-o", program, "./example") //nolint:gosec // of this repository
	build.Dir = ".."
	build.Env = append(os.Environ(), "GOWORK=")
	if out, err := build.CombinedOutput(); err != nil {
		return fmt.Errorf("build the desk: %w: %s", err, out)
	}
	defer func() { _ = os.Remove(program) }()
	k := &killing{program: program, redis: redistest.Start(b.host).URL()}
	survivor, err := k.desk(ctx)
	if err != nil {
		return err
	}
	defer survivor.kill()
	k.url = survivor.url

	var all sync.WaitGroup
	errs := make([]error, kills)
	freed := make([]time.Duration, kills)
	turn := make(chan struct{}, atOnce)
	for i := range kills {
		turn <- struct{}{}
		all.Go(func() {
			defer func() { <-turn }()
			freed[i], errs[i] = k.kill(ctx, fmt.Sprint("user-", i), age(i))
		})
	}
	all.Wait()
	for i, d := range freed {
		b.add(fmt.Sprintf("%.2f s", age(i).Seconds()), Desk, Freed, d.Seconds())
		b.log("an order of %.2f s: free after %.2f s", age(i).Seconds(), d.Seconds())
	}
	return errors.Join(errs...)
}

// age is how old the order of the i-th desk is when that is killed.
func age(i int) time.Duration { return oldestAge * time.Duration(i+1) / kills }

// killing kills desks that share a Redis.
type killing struct {
	program, redis string
	url            string // of the desk that is not killed
}

// desk is a process that serves.
type desk struct {
	cmd *exec.Cmd
	url string
}

func (k *killing) desk(ctx context.Context) (*desk, error) {
	cmd := exec.CommandContext(ctx, k.program, "-addr", "127.0.0.1:0", "-redis", k.redis) //nolint:gosec // the desk
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	d := &desk{cmd: cmd}
	line, err := bufio.NewReader(out).ReadString('\n')
	url, ok := strings.CutPrefix(strings.TrimSpace(line), "listening on ")
	if err != nil || !ok {
		d.kill()
		return nil, fmt.Errorf("the desk does not listen: %q, %w", line, err)
	}
	d.url = url
	return d, nil
}

func (d *desk) kill() {
	_ = d.cmd.Process.Kill()
	_ = d.cmd.Wait()
}

// kill kills a desk that has worked on user's order for age, and returns how long the user was
// refused by the other one.
func (k *killing) kill(ctx context.Context, user string, age time.Duration) (time.Duration, error) {
	d, err := k.desk(ctx)
	if err != nil {
		return 0, err
	}
	begun := time.AfterFunc(age, d.kill)
	defer begun.Stop()
	if status, err := placeOrder(ctx, d.url, user, 30*time.Second); err == nil {
		return 0, fmt.Errorf("the desk that was to be killed has answered %d", status)
	}
	killed := time.Now()
	for time.Since(killed) < mostFreed {
		status, err := placeOrder(ctx, k.url, user, time.Millisecond)
		switch {
		case err != nil:
			return 0, err
		case status == http.StatusCreated:
			return time.Since(killed), nil
		case status != http.StatusConflict:
			return 0, fmt.Errorf("the other desk has answered %d", status)
		}
		time.Sleep(asksEvery)
	}
	return 0, fmt.Errorf("%s was refused for %v", user, mostFreed)
}

// placeOrder places an order that takes so long.
func placeOrder(ctx context.Context, url, user string, work time.Duration) (status int, err error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, url+"/orders", strings.NewReader(`{"sku":"tea","quantity":1}`))
	if err != nil {
		return 0, err
	}
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("X-User-ID", user)
	r.Header.Set("X-Work", work.String())
	answer, err := new(http.Client).Do(r)
	if err != nil {
		return 0, err
	}
	return answer.StatusCode, answer.Body.Close()
}
