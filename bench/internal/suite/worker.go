package suite

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"time"
)

// A worker is one more process of this program. It is given a job, gets ready,
// and then measures as often as it is asked to: a JSON value a line, on its
// standard input and output.

const (
	jobRefusals = "refusals" // of one key that another process holds
	jobMemory   = "memory"   // cycles over an embedded store with so many live keys
	jobDelay    = "delay"    // a proxy before Addr that delays each direction by Delay
	jobStalls   = "stalls"   // a proxy before Addr that delays some replies by Delay
)

type job struct {
	Kind    string
	Peer    string
	Addr    string
	Pool    int
	Keys    int
	Callers int
	Window  time.Duration
	Delay   time.Duration
}

// report is what a worker answers, first when it is ready, then to each
// request.
type report struct {
	Error string `json:",omitempty"`
	Rate  float64
	Times int     `json:",omitempty"` // with those that are not measured
	CPU   float64 `json:",omitempty"` // of all Times, in microseconds
	Bytes float64 `json:",omitempty"` // a key; known when ready
	Addr  string  `json:",omitempty"` // of a proxy; known when ready
}

// Work is a worker's life: it ends with in.
func Work(ctx context.Context, in io.Reader, out io.Writer) error {
	requests, answers := json.NewDecoder(in), json.NewEncoder(out)
	var j job
	if err := requests.Decode(&j); err != nil {
		return fmt.Errorf("bench: a worker's job: %w", err)
	}
	w, err := newWorker(ctx, j)
	if err != nil {
		return answers.Encode(report{Error: err.Error()})
	}
	if err := answers.Encode(w.ready); err != nil {
		return err
	}
	for {
		var again struct{}
		if err := requests.Decode(&again); errors.Is(err, io.EOF) {
			return w.close()
		} else if err != nil {
			return err
		}
		answer, err := w.measure(ctx)
		if err != nil {
			answer = report{Error: err.Error()}
		}
		if err := answers.Encode(answer); err != nil {
			return err
		}
	}
}

type worker struct {
	ready   report
	measure func(ctx context.Context) (report, error)
	close   func() error
}

func newWorker(ctx context.Context, j job) (worker, error) {
	switch j.Kind {
	case jobMemory:
		return memoryWorker(ctx, j)
	case jobRefusals:
		return refusalsWorker(ctx, j)
	case jobDelay:
		return delayWorker(ctx, j)
	case jobStalls:
		return stallsWorker(j)
	}
	return worker{}, fmt.Errorf("no kind of job %q", j.Kind)
}
