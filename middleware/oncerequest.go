package middleware

import (
	"context"
	"net/http"

	"github.com/httplatch/httplatch/internal/oncecall"
	"github.com/httplatch/httplatch/internal/submission"
	"github.com/httplatch/httplatch/middleware/internal/fingerprint"
	"github.com/httplatch/httplatch/middleware/internal/recorder"
)

// onceRequest is one request to Idempotent or Dedupe. It is in use while the guard serves the
// request, and not longer. [handlerRun] is its run, if it has one.
type onceRequest struct {
	guard   *onceGuard
	next    http.Handler
	out     http.ResponseWriter
	request *http.Request // own

	call oncecall.Call // of the Locker
	id   string        // of the record

	report *formReport
	print  fingerprint.Sum

	run         *handlerRun // nil: the handler was not run under a lease
	unprotected bool        // the handler was run without a lease
}

// Run runs the handler under the lease of ctx, and returns the record of its answer. It does not
// recover panics. If there is no lease, because the store did not answer and the Locker fails
// open, the handler runs as if there were no guard.
func (x *onceRequest) Run(ctx context.Context) ([]byte, error) {
	if x.call.Run == nil {
		x.unprotected = true
		if x.guard.secret != nil { // the keys of its calls keep a repeat from a second effect there
			s := x.guard.submission(x.id)
			named := context.WithValue(x.request.Context(), submission.ContextKey{}, &s)
			*x.request = *x.request.WithContext(named) // no handler has seen it yet
		}
		x.next.ServeHTTP(x.out, x.request)
		return nil, nil
	}
	g, client := x.guard, x.request.Context()
	r := &handlerRun{
		Run:        x.call.Run,
		guard:      &g.guardCore,
		report:     x.report,
		lifetime:   g.lifetimeOf(g.locker.Keep()),
		outer:      runOf(client),
		id:         x.id,
		submission: g.submission(x.id),
		context:    runContext{lease: ctx, client: client},
	}
	x.run, r.context.run = r, r
	r.answer.Start(&g.answers, r, x.out, x.request)
	returned := false
	defer func() {
		if !returned {
			// The handler panicked. Code that answers in its place must not find headers of the
			// handler.
			r.answer.Discard()
		}
		r.context.end()
	}()
	*x.request = *x.request.WithContext(&r.context) // no handler has seen it yet
	x.next.ServeHTTP(&r.answer, x.request)
	returned = true
	if r.context.Err() != nil { // a handler that looks at its context may have stopped in the middle of a stream
		r.markCutOff()
	}
	switch r.answer.Complete() {
	case recorder.Outside:
		g.hints.AnsweredOutside(ctx)
	case recorder.Silent:
		g.hints.NoAnswer(ctx)
	case recorder.Answered:
	}
	receipt, kept, err := r.answer.Receipt()
	if err == nil && !kept {
		err = notKeptError{&r.answer}
	}
	return receipt, err
}

// notKeptError ends a run whose answer is sent and not recorded: the key is free.
type notKeptError struct{ answer *recorder.Answer }

func (notKeptError) Error() string { return "middleware: the answer is not kept" }

// Shared reports whether other requests may get the answer. An answer that depends on the caller is
// not shared: the next caller may be signed in.
func (n notKeptError) Shared() bool { return !recorder.OfCaller(n.answer.Code()) }

// Share returns a copy of the answer for the requests that have waited for it. Without it, each of
// them would do the same work and fail.
func (n notKeptError) Share() error { return &failure{n.answer.Code(), n.answer.Copy()} }

// failure is the end of a run whose answer was not recorded, for requests that have waited
// for it.
type failure struct {
	status int
	record []byte // nil if the answer cannot be replayed
}

func (*failure) Error() string { return "middleware: the first request failed" }

// fingerprint returns the fingerprint of the request, which every repeat must have, too. It is
// nil for Dedupe, whose record is already named by the fingerprint.
func (x *onceRequest) fingerprint() []byte {
	if x.guard.key == nil {
		return nil
	}
	return x.print[:]
}

// problem returns the refusal for err, which has kept the handler from running, or its answer
// from being sent.
func (x *onceRequest) problem(err error) *Problem {
	var p *Problem
	if x.run != nil && x.run.InTransaction() {
		p = transactionProblem(err)
	} else {
		p = onceProblem(err, x.fingerprint())
	}
	if p.Kind() == ProblemInProgress {
		p.Status = x.guard.inProgress
	}
	return p
}

// broken returns the error that kept the handler's answer from being sent.
func (x *onceRequest) broken() error {
	if x.run == nil {
		return nil
	}
	return x.run.answer.Failed()
}

// discard drops the handler's answer, and returns the request with which to write another answer.
// After a run, this is a copy of the handler's request with the context of r, the caller's
// request: the context of the run has ended, and a goroutine of the handler may still read the
// handler's request.
func (x *onceRequest) discard(r *http.Request) *http.Request {
	if x.run != nil {
		x.run.answer.Discard()
		x.request = x.request.WithContext(r.Context())
	}
	return x.request
}
