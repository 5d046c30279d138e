package main

import (
	"context"
	"net/http"
	"time"

	"github.com/httplatch/httplatch/lock"
)

// trial is what the headers for trying things out ask of an order.
type trial struct {
	work   time.Duration
	mode   string // "", 500, panic or hang
	commit bool
}

// trialOf reads X-Work and X-Fail. Its errors are refusals.
func trialOf(r *http.Request, work time.Duration) (trial, error) {
	if text := r.Header.Get("X-Work"); text != "" {
		d, err := time.ParseDuration(text)
		if err != nil || d < 0 || d > maxWork {
			return trial{}, &refusal{http.StatusBadRequest, `X-Work must be a duration from 0 to 30s, like "300ms".`}
		}
		work = d
	}
	commit := r.Header.Get("X-Commit")
	switch {
	case commit != "" && commit != "1":
		return trial{}, &refusal{http.StatusBadRequest, "X-Commit must be 1."}
	case commit != "" && lock.Attempt(r.Context()) == 0:
		return trial{}, &refusal{http.StatusBadRequest, "X-Commit needs an Idempotency-Key: without one, nothing is remembered."}
	}
	mode := r.Header.Get("X-Fail")
	switch mode {
	case "", "500", "panic", "hang":
		return trial{work, mode, commit != ""}, nil
	default:
		return trial{}, &refusal{http.StatusBadRequest, "X-Fail must be 500, panic or hang."}
	}
}

// after does what is asked for when the order exists.
func (t trial) after(ctx context.Context) error {
	if t.commit {
		if err := lock.Commit(ctx); err != nil {
			return &refusal{http.StatusInternalServerError, "X-Commit could not be obeyed. The order exists."}
		}
	}
	switch t.mode {
	case "500":
		return &refusal{http.StatusInternalServerError, "X-Fail asked for this. The order exists."}
	case "panic":
		panic("X-Fail asked for this; the order exists")
	case "hang":
		<-ctx.Done()
		return &refusal{http.StatusServiceUnavailable, "X-Fail asked for a handler that hangs. The order exists."}
	}
	return nil
}
