package middleware

import (
	"context"
	"errors"
	"net/http"
	"sync/atomic"

	"github.com/httplatch/httplatch/internal/oncecall"
	"github.com/httplatch/httplatch/lock"
	"github.com/httplatch/httplatch/middleware/internal/fingerprint"
)

// execution is one request to a handler whose answer is to be kept. Nothing uses it when
// the guard has served the request.
type execution struct {
	guard   *onceGuard
	next    http.Handler
	out     http.ResponseWriter
	request *http.Request // own

	call *oncecall.Call // of the Locker
	id   string         // of the record

	report *formReport
	asked  fingerprint.Sum

	ran         *ran // nil: the handler was not run under a lease
	unprotected bool // it was run without one
}

// ran is what there is once the handler runs.
type ran struct {
	guard    *onceGuard
	report   *formReport
	outer    *ran // of a guard further out
	once     oncecall.Run
	id       string // of its record
	context  runContext
	answer   answer
	refused  atomic.Int32 // the status with which a guard further in has refused; 0: none has
	passing  atomic.Bool  // DoNotKeep was called
	settled  bool         // before the handler returned
	returned bool         // the handler has
}

type ranKey struct{}

// ranOf returns the innermost run that ctx is of, nil if there is none.
func ranOf(ctx context.Context) *ran {
	x, _ := ctx.Value(ranKey{}).(*ran)
	return x
}

// Run runs the handler under the lease that ctx is of, and returns the record
// of its answer. A panic goes through it. If there is no lease, because the store did
// not answer and the Locker fails open, the handler runs as if there were no guard.
func (x *execution) Run(ctx context.Context) ([]byte, error) {
	if x.call.Run == nil {
		x.unprotected = true
		x.next.ServeHTTP(x.out, x.request)
		return nil, nil
	}
	r := &ran{guard: x.guard, report: x.report, outer: ranOf(x.request.Context()), once: x.call.Run, id: x.id}
	x.ran = r
	r.context.init(ctx, x.request.Context(), r)
	r.answer.init(x.out, x.request, r)
	defer func() {
		if !r.returned && !r.answer.gone {
			// It panicked. The code that answers instead must not find half of its headers.
			r.answer.discard()
		}
		r.context.end()
	}()
	setContext(&r.context, x.request)
	x.next.ServeHTTP(&r.answer, x.request)
	r.returned = true
	return r.answer.finish(ctx)
}

// fingerprint is what a repeat must ask for too, nil if that is in the id.
func (x *execution) fingerprint() []byte {
	if x.guard.key == nil {
		return nil
	}
	return x.asked[:]
}

// left reports whether an answer of the handler has begun to go out.
func (x *execution) left() bool { return x.ran != nil && x.ran.answer.gone }

// complete reports whether the handler has returned and its whole answer is at
// hand.
func (x *execution) complete() bool { return x.ran != nil && x.ran.returned && x.broken() == nil }

// problem is the answer if err has kept the handler from running, or its answer from
// being sent.
func (x *execution) problem(err error) *Problem {
	if x.ran != nil && x.ran.once.InTransaction() {
		return transactionProblem(err)
	}
	return onceProblem(err, x.fingerprint())
}

// broken is why the handler's answer could not begin to go out.
func (x *execution) broken() error {
	if x.ran == nil {
		return nil
	}
	return x.ran.answer.err
}

// unrun returns the own request for an answer in place of the handler's. If there
// was a run, its context has ended, and that of r, the caller's, has not; what
// the handler has left behind may still look at its request, so this is a copy.
func (x *execution) unrun(r *http.Request) *http.Request {
	if x.ran != nil {
		x.request = x.request.WithContext(r.Context())
	}
	return x.request
}

// discard makes room for another answer than the handler's.
func (x *execution) discard() {
	if x.ran != nil {
		x.ran.answer.discard()
	}
}

// settle records receipt as the outcome while the handler still runs. A store
// that does not answer is no error: the claim stays, its lease is renewed, and
// it is settled in the background.
func (r *ran) settle(receipt []byte) error {
	r.context.attach() // to settle ends the lease, which must not end the handler
	err := r.once.SettleEarly(r.context.lease, receipt)
	if errors.Is(err, lock.ErrLost) {
		r.context.detach()
		return err
	}
	r.settled = true
	return nil
}
