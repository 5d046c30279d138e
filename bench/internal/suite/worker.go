package suite

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/httplatch/httplatch/bench/internal/load"
	"github.com/httplatch/httplatch/bench/internal/peer"
)

// A worker is one more process of this program. It is told a job, gets ready,
// and then measures as often as it is asked to: a JSON value a line, on its
// standard input and output.

const (
	jobRefusals = "refusals" // of one key that another process holds
	jobMemory   = "memory"   // cycles over an embedded store with so many live keys
)

type job struct {
	Kind    string
	Peer    string
	Addr    string
	Pool    int
	Keys    int
	Callers int
	Window  time.Duration
}

// report is what a worker answers, first when it is ready, then to each
// request.
type report struct {
	Error string `json:",omitempty"`
	Rate  float64
	Bytes float64 `json:",omitempty"` // a key; told when ready
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
	if err := answers.Encode(report{Bytes: w.bytes}); err != nil {
		return err
	}
	for {
		var again struct{}
		if err := requests.Decode(&again); errors.Is(err, io.EOF) {
			return w.close()
		} else if err != nil {
			return err
		}
		answer := report{}
		if r, err := w.measure(ctx); err != nil {
			answer.Error = err.Error()
		} else {
			answer.Rate = r.Rate()
		}
		if err := answers.Encode(answer); err != nil {
			return err
		}
	}
}

type worker struct {
	bytes   float64
	measure func(ctx context.Context) (load.Result, error)
	close   func() error
}

func newWorker(ctx context.Context, j job) (worker, error) {
	b := &bench{Settings: Settings{Window: j.Window}}
	switch j.Kind {
	case jobMemory:
		return memoryWorker(ctx, b, j)
	case jobRefusals:
		p, ok := peer.Named(j.Peer)
		if !ok {
			return worker{}, fmt.Errorf("no peer %q", j.Peer)
		}
		l, err := p.Open(ctx, peer.Target{Addr: j.Addr, Pool: j.Pool})
		if err != nil {
			return worker{}, err
		}
		return worker{
			measure: func(ctx context.Context) (load.Result, error) { return b.closed(ctx, j.Callers, refusals(l)) },
			close:   func() error { return l.Close(context.WithoutCancel(ctx)) },
		}, nil
	}
	return worker{}, fmt.Errorf("no kind of job %q", j.Kind)
}
