package main

import (
	"context"
	"net/http"
	"time"

	"github.com/httplatch/httplatch/lock"
	"github.com/httplatch/httplatch/lock/mysqlstore"
	"github.com/httplatch/httplatch/lock/pgstore"
	"github.com/httplatch/httplatch/lock/sqlitestore"
)

// trial has the settings of the headers that show failures (see the package).
type trial struct {
	work   time.Duration
	linger time.Duration
	mode   string // "", 500, panic or hang
	commit bool
}

// trialOf reads X-Work, X-Linger, X-Fail and X-Commit. Its errors are refusals.
func trialOf(r *http.Request, work time.Duration) (trial, error) {
	work, err := durationOf(r, "X-Work", work)
	if err != nil {
		return trial{}, err
	}
	linger, err := durationOf(r, "X-Linger", 0)
	if err != nil {
		return trial{}, err
	}
	commit := r.Header.Get("X-Commit")
	switch {
	case work+linger > maxWork: // a shutdown waits for no longer than that
		return trial{}, &refusal{http.StatusBadRequest, "X-Work and X-Linger must not be more than 30s together."}
	case commit != "" && commit != "1":
		return trial{}, &refusal{http.StatusBadRequest, "X-Commit must be 1."}
	case commit != "" && lock.Attempt(r.Context()) == 0:
		return trial{}, &refusal{http.StatusBadRequest, "X-Commit needs an Idempotency-Key: without one, nothing is remembered."}
	}
	mode := r.Header.Get("X-Fail")
	switch mode {
	case "", "500", "panic", "hang":
		return trial{work, linger, mode, commit != ""}, nil
	default:
		return trial{}, &refusal{http.StatusBadRequest, "X-Fail must be 500, panic or hang."}
	}
}

// durationOf reads a header for trying things out.
func durationOf(r *http.Request, header string, absent time.Duration) (time.Duration, error) {
	text := r.Header.Get(header)
	if text == "" {
		return absent, nil
	}
	d, err := time.ParseDuration(text)
	if err != nil || d < 0 || d > maxWork {
		return 0, &refusal{http.StatusBadRequest, header + ` must be a duration from 0 to 30s, like "300ms".`}
	}
	return d, nil
}

// fate says whether the order exists after the handler has placed it and then failed. In a
// transaction it is rolled back, even after lock.Commit.
func fate(ctx context.Context) string {
	_, pg := pgstore.Tx(ctx)
	_, my := mysqlstore.Tx(ctx)
	if _, ok := sqlitestore.Tx(ctx); ok || pg || my {
		return "The order is rolled back."
	}
	return "The order exists."
}

// after follows the headers once the order exists.
func (t trial) after(ctx context.Context) error {
	if t.commit {
		if err := lock.Commit(ctx); err != nil {
			return &refusal{http.StatusInternalServerError, "X-Commit could not be obeyed. " + fate(ctx)}
		}
	}
	<-time.NewTimer(t.linger).C // ignores ctx, as a careless handler does
	switch t.mode {
	case "500":
		return &refusal{http.StatusInternalServerError, "X-Fail asked for this. " + fate(ctx)}
	case "panic":
		panic("X-Fail asked for this")
	case "hang":
		<-ctx.Done()
		return &refusal{http.StatusServiceUnavailable, "X-Fail asked for a handler that hangs. " + fate(ctx)}
	}
	return nil
}
