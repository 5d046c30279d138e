package lock

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/httplatch/httplatch/internal/carry"
)

// outgoing is what the sends of one exchange have in common.
type outgoing struct {
	core   *core
	parent context.Context //nolint:containedctx // of the exchange, which is one call
	deaf   bool            // the exchange goes on when parent has ended
	flight *flight         // nil if nobody has to know what is on its way
	budget time.Duration   // for all
	most   int             // sends

	away       bool // one that the caller makes itself is on its way
	sends      int
	deadline   time.Time // once one was sent
	unanswered bool      // one of those that are over was; it may have been applied, or may still be
	cause      error     // the last failure; nil if there was only silence
	err        error     // once the exchange is over: how it ended
}

// maxStalls is after how many sends of its own that stalled a caller goes on as
// after any other silence.
const maxStalls = 3

// next begins a send that the caller makes itself, if a store that returns in
// time allows it. Nearly all calls are answered by the first of these, and a
// goroutine for each would cost more than all else here. back ends it.
//
// It has a third of the budget: nothing can be done beside it. Of those that
// follow one that stalled the store knows that they do. For a while after one
// that had no answer in time there is none: a store that merely is slow must not
// lose a connection by every call.
func (x *outgoing) next() (try *carry.Try, more bool) {
	stalled := errors.Is(x.cause, carry.ErrStalled)
	if !x.core.inTime || x.sends == maxStalls || x.sends > 0 && !stalled || x.core.slow() {
		return nil, false
	}
	at := time.Now()
	if x.sends == 0 {
		x.deadline = at.Add(x.budget)
	}
	switch {
	case x.flight == nil:
		try = &carry.Try{Counter: x.core}
	case x.sends == 0:
		try = &x.flight.try // one allocation less
		try.Counter = x.flight
	default:
		try = &carry.Try{Counter: x.flight}
	}
	try.Parent, try.Deaf, try.Until, try.Keep = x.parent, x.deaf, x.until(at), x.deadline
	try.Stalls, try.Alarm = x.sends, &x.core.alarm
	x.sends++
	x.depart()
	x.away = true
	return try, true
}

// abandon counts a send that will not come back: a hook of the store's has ended
// the caller's goroutine, or panicked. It is deferred by who calls next.
func (x *outgoing) abandon() {
	if x.away {
		x.arrived(errAbandoned)
	}
}

var errAbandoned = errors.New("the call did not return")

// until is when the send that begins now is given up.
func (x *outgoing) until(at time.Time) time.Time {
	until := x.deadline
	if third := at.Add(x.budget / 3); x.most > 1 && third.Before(until) {
		until = third
	}
	if end, ok := x.parent.Deadline(); ok && !x.deaf && end.Before(until) {
		until = end
	}
	return until
}

// back ends that send, and reports whether the exchange is over.
func (x *outgoing) back(try *carry.Try, err error) (over bool) {
	try.End()
	x.away = false
	x.arrived(err)
	if err == nil {
		return true
	}
	if x.failed(err, 0) {
		return true
	}
	if !errors.Is(err, carry.ErrStalled) && !time.Now().Before(try.Until) {
		x.cause = nil // its time was over, whatever it says
		if !x.hurried() {
			x.core.foundSlow()
		}
	}
	if (x.deaf || x.parent.Err() == nil) && time.Until(x.deadline) > x.budget/20 {
		return false
	}
	x.err = verdict(x.expired(), x.unanswered)
	return true
}

// hurried reports whether it is the caller that waits no longer. Its context says
// so a moment after its deadline.
func (x *outgoing) hurried() bool {
	if x.deaf {
		return false
	}
	end, ends := x.parent.Deadline()
	return x.parent.Err() != nil || ends && !time.Now().Before(end)
}

// expired says why the exchange ended without an answer.
func (x *outgoing) expired() error {
	switch {
	case !x.deaf && x.parent.Err() != nil:
		return context.Cause(x.parent)
	case x.cause != nil:
		return fmt.Errorf("not served within %v, the last failure: %w", x.budget, x.cause)
	default:
		return silence(x.budget)
	}
}

// depart counts a send.
func (x *outgoing) depart() {
	if x.flight != nil {
		x.flight.under.Add(1)
	}
	x.core.calls.enter()
}

// arrived counts a send that has returned.
func (x *outgoing) arrived(err error) {
	if x.flight != nil {
		x.flight.returns(err)
	}
	x.core.calls.leave()
}

// failed takes in that a send has failed while so many others were on their way,
// and reports whether that is the end.
func (x *outgoing) failed(err error, others int) (over bool) {
	if errors.Is(err, ErrDenied) || errors.Is(err, errors.ErrUnsupported) {
		// An answer, and one that the same question will get again.
		x.unanswered = x.unanswered || others > 0
		x.err = verdict(err, x.unanswered)
		return true
	}
	x.cause = err
	if !errors.Is(err, ErrNotApplied) {
		x.unanswered = true
	}
	if x.most == 1 {
		x.err = verdict(err, x.unanswered)
		return true
	}
	return false
}

// hedge goes on with x until it is answered or the budget is over. An earlier
// send is not given up for a later one: on a slow network its answer may still
// be the first.
//
// It returns on its own timer, whatever the store does with its context.
func hedge[T any](x outgoing, call func(context.Context) (T, error)) reply[T] {
	if x.sends == 0 {
		x.deadline = time.Now().Add(x.budget)
	}
	if x.deaf {
		x.parent = context.WithoutCancel(x.parent)
	}
	ctx, cancel := context.WithDeadline(x.parent, x.deadline)
	defer cancel()
	ctx = handDown(ctx, x.core, x.flight)

	type answer struct {
		value T
		err   error
	}
	// Never blocks a send that nobody waits for any more. Pointers, since most of
	// the room is never used.
	answers := make(chan *answer, maxSends)
	inFlight := 0
	send := func() {
		x.sends++
		inFlight++
		x.depart()
		go func() {
			a := &answer{err: errAbandoned}
			defer func() {
				x.arrived(a.err)
				answers <- a
			}()
			a.value, a.err = call(ctx)
		}()
	}

	again := time.NewTimer(x.budget / 3)
	defer again.Stop()
	end, ends := x.parent.Deadline()
	switch {
	case ends && !time.Now().Before(end): // a send ended with it, a moment before it says that it has
	case x.cause == nil, errors.Is(x.cause, carry.ErrStalled):
		send()
	default:
		again.Reset(pause(x.sends))
	}
	for {
		select {
		case a := <-answers:
			inFlight--
			if a.err == nil {
				return reply[T]{value: a.value, unanswered: x.unanswered || inFlight > 0}
			}
			if x.failed(a.err, inFlight) {
				return reply[T]{err: x.err, unanswered: x.unanswered}
			}
			again.Reset(pause(x.sends))
		case <-again.C:
			// A repetition that falls together with the deadline would be a
			// command that nobody waits for.
			if x.sends < x.most && time.Until(x.deadline) > x.budget/20 {
				send()
				again.Reset(x.budget / 3)
			}
		case <-ctx.Done():
			unanswered := x.unanswered || inFlight > 0
			return reply[T]{err: verdict(x.expired(), unanswered), unanswered: unanswered}
		}
	}
}
