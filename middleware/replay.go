package middleware

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/httplatch/httplatch/keyfunc"
	"github.com/httplatch/httplatch/middleware/internal/jsonrpc"
	"github.com/httplatch/httplatch/middleware/internal/record"
)

func (g *guard) refuseRun(x *run, p *Problem) {
	if p.Kind() == ProblemInProgress {
		p.Status = cmp.Or(g.inProgress, p.Status)
	}
	if kinds[p.Kind()].endsKey {
		x.remembered = 0
		x.AddHeaders(x.out.Header())
	}
	g.refuse(x.out, x.in, p)
}

// replayRun answers x with the record of another run. left is how much longer that is kept, 0 if it is not known.
func (g *guard) replayRun(x *run, receipt []byte, left time.Duration) {
	rec, p := g.replayed(x, receipt)
	if p != nil {
		g.refuseRun(x, p)
		return
	}
	x.remembered = left
	x.AddHeaders(x.out.Header())
	record.Replay(x.out, x.in, rec, "true")
}

// failure is the end of a run whose answer was not recorded.
type failure struct {
	record []byte // of its answer; nil if that cannot be replayed
}

func (*failure) Error() string { return "middleware: the first request failed" }

// replayFailure sends the answer of a request that has failed with err to a repeat that has waited for it.
func (g *guard) replayFailure(x *run, err error) {
	f, ok := errors.AsType[*failure](err)
	if !ok || f.record == nil {
		g.refuse(x.out, x.in, ProblemFirstFailed.problem(err))
		return
	}
	sent := &record.StatusWriter{ResponseWriter: x.out} // WithReplay may change the status, or refuse
	if rec, p := g.replayed(x, f.record); p != nil {
		g.refuse(sent, x.in, p)
	} else {
		record.Replay(sent, x.in, rec, "not-kept")
	}
	markRefused(x.in, sent.Code)
}

// Errors of the problems of a record without an answer.
var (
	errUnanswered = errors.New("middleware: no answer says what became of it")
	errNotKept    = errors.New("middleware: no more is known of the answer than that there was one")
)

// replayed returns the answer in receipt as x gets it, or the reason why it gets none. A receipt that cannot be read,
// because a newer version has written it or it is damaged, still shows that the request was processed.
func (g *guard) replayed(x *run, receipt []byte) (record.Record, *Problem) {
	rec, err := record.Read(receipt)
	switch {
	case string(receipt) == record.Unknown:
		return rec, ProblemOutcomeUnknown.problem(errUnanswered)
	case len(receipt) == 0, rec.Tombstone:
		rec.SetHeader(x.out.Header()) // the Location
		return rec, ProblemResultNotReplayable.problem(errNotKept)
	case err != nil:
		return rec, ProblemResultNotReplayable.problem(err)
	}
	if x.awaited != nil {
		rec.Body, _ = jsonrpc.Readdress(rec.ContentType(), rec.Body, x.awaited)
	}
	if g.onReplay == nil {
		return rec, nil
	}
	rec, err = adapted(g.onReplay, x.out.Header(), x.in, rec)
	if own, ok := errors.AsType[*keyfunc.Error](err); ok {
		return rec, keyProblem(own)
	}
	if err != nil {
		g.hints.log(x.in.Context(), &functionFailed, err)
		return rec, &Problem{Status: http.StatusInternalServerError, Title: http.StatusText(http.StatusInternalServerError), Err: err}
	}
	return rec, nil
}

// adapted returns rec as f, of [WithReplay], changes it for r. outside are the headers of outer middleware.
func adapted(f func(r *http.Request, a *Answer) error, outside http.Header, r *http.Request, rec record.Record) (record.Record, error) {
	a := Answer{Status: rec.Status, Header: http.Header{}, Body: bytes.Clone(rec.Body)}
	sent := outside.Clone()
	rec.SetHeader(a.Header)
	rec.SetHeader(sent)
	for name := range a.Header {
		a.Header[name] = sent[name] // with the values of outer middleware to which the handler has added its own
	}
	before, _ := a.record()
	if err := f(r, &a); err != nil {
		return rec, err
	}
	after, err := a.record()
	switch {
	case bytes.Equal(before, after):
		return rec, nil
	case err != nil:
		return rec, fmt.Errorf("middleware.WithReplay: %w", err)
	}
	return record.Read(after)
}
