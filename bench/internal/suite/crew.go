package suite

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"sync"
)

// WorkerArg is the only argument of a program that is to be a worker.
const WorkerArg = "worker"

// crew are workers that do the same job.
type crew struct{ members []*member }

type member struct {
	in    io.WriteCloser
	out   *json.Decoder
	wait  func() error
	ready report
}

// hire starts n workers and returns when all are ready.
func hire(ctx context.Context, n int, j job) (*crew, error) {
	c := &crew{}
	for range n {
		m, err := start(ctx, j)
		if err != nil {
			return nil, errors.Join(err, c.dismiss())
		}
		c.members = append(c.members, m)
	}
	return c, nil
}

func start(ctx context.Context, j job) (*member, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	cmd := exec.CommandContext(ctx, self, WorkerArg) //nolint:gosec // this program
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	m := &member{in: in, out: json.NewDecoder(out), wait: cmd.Wait}
	if m.ready, err = m.ask(j); err != nil {
		return nil, errors.Join(err, m.dismiss())
	}
	return m, nil
}

// ask sends a request and waits for its report.
func (m *member) ask(request any) (report, error) {
	if err := json.NewEncoder(m.in).Encode(request); err != nil {
		return report{}, fmt.Errorf("worker: %w", err)
	}
	var r report
	if err := m.out.Decode(&r); err != nil {
		return report{}, fmt.Errorf("worker: %w", err)
	}
	if r.Error != "" {
		return report{}, fmt.Errorf("worker: %s", r.Error)
	}
	return r, nil
}

// dismiss lets a worker end, and waits for it.
func (m *member) dismiss() error { return errors.Join(m.in.Close(), m.wait()) }

// run lets all measure at once.
func (c *crew) run() ([]report, error) {
	reports, errs := make([]report, len(c.members)), make([]error, len(c.members))
	var wg sync.WaitGroup
	for i, m := range c.members {
		wg.Go(func() { reports[i], errs[i] = m.ask(struct{}{}) })
	}
	wg.Wait()
	return reports, errors.Join(errs...)
}

func (c *crew) dismiss() error {
	var err error
	for _, m := range c.members {
		err = errors.Join(err, m.dismiss())
	}
	return err
}
