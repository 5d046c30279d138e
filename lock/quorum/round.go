package quorum

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/httplatch/httplatch/lock"
	"github.com/httplatch/httplatch/lock/internal/send"
)

// answer is the answer of a node to a call.
type answer[T any] struct {
	node  int
	value T
	err   error
}

// unknown reports whether the call may have had an unreported effect.
func (a *answer[T]) unknown() bool { return a.err != nil && !errors.Is(a.err, lock.ErrNotApplied) }

// round is one call to several nodes at once. The caller collects answers until the round is
// decided. late handles every later answer, on the goroutine of its node.
//
// The calls to nodes end with the node timeout. Until the decision they end with the caller's
// context too, so that no call is sent without a caller that waits. After the decision they do
// not: an acquire with its majority must not interrupt the calls to the other nodes.
type round[T any] struct {
	answers chan answer[T] // has room for the answers of all nodes
	asked   []int
	heard   []int       // nodes whose answers were collected
	latest  *time.Timer // ends the wait for nodes
	untie   func()      // lets the calls outlive the caller's context, unless it has ended
	timeout time.Duration

	mu   sync.Mutex
	late func(answer[T]) // set by the decision

	running atomic.Int32 // parts of the round: nodes, functions of also, and the caller
	over    func()       // called when running is 0
}

// nothingLeft is the argument over of askNodes for a round that leaves nothing to clean up.
func nothingLeft() send.Landing { return send.Nothing }

// askNodes starts a round. The caller must call decide and, at the end, done. over is called when
// no part of the round runs, and returns its outcome.
func askNodes[T any](ctx context.Context, q *Store, nodes []int, over func() send.Landing, call func(ctx context.Context, node int) (T, error)) *round[T] {
	common, cancel := context.WithTimeout(context.WithoutCancel(ctx), q.timeout)
	flight := send.Depart(ctx)
	r := &round[T]{
		answers: make(chan answer[T], len(nodes)),
		asked:   nodes,
		// A node's call ends soon after its timeout, often with an error that says whether
		// it was sent. After that, the round does not wait for it.
		latest:  time.NewTimer(q.timeout * 3 / 2),
		timeout: q.timeout,
		over: func() {
			cancel()
			flight.Arrive(over())
		},
	}
	stop := context.AfterFunc(ctx, cancel)
	r.untie = func() {
		if stop(); ctx.Err() != nil { // the caller has seen the end before AfterFunc has
			cancel()
		}
	}
	r.running.Store(int32(len(nodes)) + 1) //nolint:gosec // a handful
	for _, node := range nodes {
		go func() {
			defer r.done()
			value, err := guardedNode(common, q, node, call)
			if err == nil && common.Err() != nil {
				err = errTardy // scheduling must not decide how a node at the limit counts
			}
			r.deliver(answer[T]{node, value, err})
		}()
	}
	return r
}

var errTardy = errors.New("answered too late")

// guardedNode makes a call on a node. A panic is a failure.
func guardedNode[T any](ctx context.Context, q *Store, node int, call func(context.Context, int) (T, error)) (value T, err error) {
	defer func() { send.LogPanic(&q.logged, slog.Default(), err) }()
	defer send.Recover(&err)
	return call(ctx, node)
}

// askNode makes one more call on a node, even if the caller has gone: the call is clean-up for its
// token.
func askNode[T any](ctx context.Context, q *Store, node int, call func(context.Context, int) (T, error)) (T, error) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), q.timeout)
	defer cancel()
	return guardedNode(ctx, q, node, call)
}

func (r *round[T]) deliver(a answer[T]) {
	r.mu.Lock()
	late := r.late
	if late == nil {
		r.answers <- a
	}
	r.mu.Unlock()
	if late != nil {
		late(a)
	}
}

// next returns the next answer. ok is false if there are no more, or none in time.
func (r *round[T]) next(ctx context.Context) (a answer[T], ok bool) {
	if len(r.heard) == len(r.asked) {
		return a, false
	}
	select {
	case a = <-r.answers:
	default: // only now: an answer that has arrived counts, even if the time is over too
		select {
		case a = <-r.answers:
		case <-r.latest.C:
			return a, false
		case <-ctx.Done():
			return a, false
		}
	}
	r.heard = append(r.heard, a.node)
	return a, true
}

// silent returns, for each node that has not answered, an answer with an error.
func (r *round[T]) silent(ctx context.Context) (all []answer[T]) {
	for _, node := range r.asked {
		if !slices.Contains(r.heard, node) {
			err := error(send.SilenceError(r.timeout))
			if ctx.Err() != nil {
				err = context.Cause(ctx)
			}
			all = append(all, answer[T]{node: node, err: err})
		}
	}
	return all
}

// decide ends the collecting. It returns the answers that have arrived and were not collected.
// late gets each answer that arrives afterwards.
func (r *round[T]) decide(late func(answer[T])) (last []answer[T]) {
	r.untie()
	r.latest.Stop()
	r.mu.Lock()
	defer r.mu.Unlock()
	r.late = late
	for {
		select {
		case a := <-r.answers:
			r.heard = append(r.heard, a.node)
			last = append(last, a)
		default:
			return last
		}
	}
}

// also runs f as part of the round.
func (r *round[T]) also(f func()) {
	r.running.Add(1)
	go func() {
		defer r.done()
		f()
	}()
}

func (r *round[T]) done() {
	if r.running.Add(-1) == 0 {
		r.over()
	}
}
