// Package send makes the calls of a Locker to a store that is not in its process. The check of
// a store, and the beginning of a transaction, do not pass through it: they have bounds of their
// own, and are not repeated.
//
// A call is sent, on the goroutine of its caller, until it is answered, until its
// budget is over, or until the [RetryBudget] does not pay for another send.
// There is one send at a time. This relies on two rules of lock.Store: a store
// returns when the context of a call ends, and a call may be sent again for the
// same token.
package send

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync/atomic"
	"time"
)

// Sender makes the calls to one store.
type Sender struct {
	Retries RetryBudget
	Sends   Counter // sends that have not ended, also if their callers have left

	// Dead reports whether the claim of a token is known to have no holder. It is for a
	// store that can choose which of several entries it names.
	Dead func(token string) bool

	judge func(error) Verdict
}

// Verdict is the meaning of a store's error for its call.
type Verdict uint8

const (
	// Unknown says that the send may have been applied.
	Unknown Verdict = iota
	// NotApplied says that the send was not applied, and that another send may be.
	NotApplied
	// Final says that the send was not applied, and that another send would end the same way.
	Final
)

// New returns a Sender. judge returns the meaning of an error of the store.
func New(judge func(error) Verdict) *Sender {
	s := &Sender{judge: judge}
	s.Retries.init(time.Now())
	return s
}

// Terms limit a call.
type Terms struct {
	Budget   time.Duration
	Lasting  bool // it does not end with the caller's context
	Once     bool // one send only
	Cleaning bool // it is clean-up, which comes after calls of callers
}

// Request is one call to a store, which may be sent several times. It keeps the answer, and a panic of the
// store is an error of Send ([Recover]).
type Request interface {
	Send(ctx context.Context) error
}

// maxSends bounds the sends of one call.
const maxSends = 8

// Call is one call to a store. It is used once, and is part of a larger struct, so that it
// costs no allocation. Only the goroutine that calls Do uses its fields.
type Call struct {
	sender   *Sender
	parent   context.Context //nolint:containedctx // of a call, which ends with Do
	terms    Terms
	began    time.Time
	deadline time.Time

	first      Try
	sends      int
	departed   int  // sends that had departed before the present one
	unanswered bool // a send got no answer: it may have been applied, or may be applied later
	cause      error

	flight atomic.Pointer[Flight]
}

// Do makes the call r. It returns the error of the last send that failed, or an error that
// says that there was no answer. Unanswered says whether the call may have been applied.
func Do(ctx context.Context, s *Sender, c *Call, terms Terms, r Request) error {
	c.sender, c.parent, c.terms = s, ctx, terms
	c.began = time.Now()
	c.deadline = c.began.Add(terms.Budget)
	if end, ok := ctx.Deadline(); ok && !terms.Lasting && end.Before(c.deadline) {
		c.deadline = end
	}
	for at := c.began; ; at = time.Now() {
		t := c.begin(at)
		if again, err := c.end(t, r.Send(t)); !again {
			return err
		}
	}
}

// Unanswered reports whether a send of the call got no answer. Such a send may have been applied,
// or may still be applied, even if another send was answered. A nil Call has no sends.
func (c *Call) Unanswered() bool { return c != nil && c.unanswered }

// Flight returns the Flight of the call, nil if it has left nothing in flight or in doubt.
func (c *Call) Flight() *Flight {
	if c == nil {
		return nil
	}
	return c.flight.Load()
}

func (c *Call) begin(at time.Time) *Try {
	t := &c.first
	if c.sends++; c.sends > 1 {
		t = new(Try) // a store may still use the first
		c.departed = c.flight.Load().departed()
	}
	t.call, t.nth, t.began = c, c.sends, at
	c.sender.Sends.Enter()
	return t
}

// end ends the send t, which has returned err. again says that another send follows, and otherwise failed is the
// error of the call.
func (c *Call) end(t *Try, err error) (again bool, failed error) {
	tokens, v := &c.sender.Retries, Final // an answer is final
	if err != nil {
		v = c.sender.judge(err)
	}
	t.endWith(context.Canceled)
	if v == Unknown {
		c.unanswered = true
		if c.flight.Load().departed() == c.departed {
			c.inFlight().lose()
		}
	}
	c.sender.Sends.Leave()
	paid, until := t.spent()
	switch late := err != nil && !time.Now().Before(until); {
	case err == nil:
		tokens.add(perCall)
	case late && v == Unknown:
		c.cause = nil // the time was over, whatever the error says
	case !late || c.cause == nil:
		c.cause = err // otherwise the earlier failure says more
	}
	// No caller would wait for a command that is sent at the deadline.
	another := v != Final && !c.terms.Once && c.sends < maxSends && c.gone() == nil && c.worthwhile(0)
	if another && (paid || errors.Is(err, ErrSplit) || tokens.Take()) {
		if c.cause == nil || c.pause() {
			return true, nil
		}
		paid = true
	}
	if paid {
		tokens.Give()
	}
	if v != Final {
		err = c.reason()
	}
	return false, err
}

// worthwhile reports whether there is time for another send after so long a wait.
func (c *Call) worthwhile(wait time.Duration) bool {
	return time.Until(c.deadline)-wait > c.terms.Budget/20
}

// gone returns the cause if the caller no longer waits, nil if it waits.
func (c *Call) gone() error {
	if c.terms.Lasting {
		return nil
	}
	return Gone(c.parent)
}

// Gone returns the cause if the caller with this context no longer waits, nil if it waits. It compares the deadline
// itself, because a context ends a moment after its deadline.
func Gone(ctx context.Context) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	if end, ok := ctx.Deadline(); ok && !time.Now().Before(end) {
		return context.DeadlineExceeded
	}
	return nil
}

// pause waits after a send that failed: 5 ms, then twice as long each time. The upper half is
// random, so that callers which failed together do not come back together. It reports false if
// the time is over by then, or the caller has left.
func (c *Call) pause() bool {
	d := 5 * time.Millisecond << (c.sends - 1)
	d = d/2 + rand.N(d/2+1) //nolint:gosec // spreading retries needs no secrecy
	if !c.worthwhile(d) {
		return false
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-c.first.CallerGone():
		return false
	}
}

// reason returns the error of a call that ends without an answer. If the caller left before its
// deadline, or made the call just before it, the silence does not show a fault of the store.
func (c *Call) reason() error {
	gone := c.gone()
	had := time.Since(c.began)
	switch left := gone != nil; {
	case left && (time.Now().Before(c.deadline) || had < c.terms.Budget/20):
		return GoneError{gone}
	case left && c.cause == nil:
		return lateError{SilenceError(had), gone}
	case c.cause == nil:
		return SilenceError(min(had, c.terms.Budget))
	case left:
		return fmt.Errorf("not served in %d tries until %w, the last failure: %w", c.sends, gone, c.cause)
	case c.sends == 1:
		return c.cause
	default:
		return fmt.Errorf("not served in %d tries, the last failure: %w", c.sends, c.cause)
	}
}
