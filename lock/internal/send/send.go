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
	"sync"
	"time"

	"github.com/httplatch/httplatch/lock/internal/clock"
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

// The meanings of an error.
const (
	Unknown    Verdict = iota // the send may have been applied
	NotApplied                // it was not applied, and another send may be
	Final                     // it was not applied, and another send would end the same way
)

// New returns a Sender. judge returns the meaning of an error of the store.
func New(judge func(error) Verdict) *Sender {
	s := &Sender{judge: judge}
	s.Retries.saved.Store(reserve)
	s.Retries.filled.Store(int64(clock.Now()) / 1e6)
	return s
}

// Terms limit a call.
type Terms struct {
	Budget   time.Duration
	Lasting  bool // it does not end with the caller's context
	Single   bool // one send only
	Cleaning bool // it is clean-up, which comes after calls of callers
}

// Request is one call to a store, which may be sent several times. It keeps the answer, and a panic of the
// store is an error of Send ([Recover]).
type Request interface {
	Send(ctx context.Context) error
}

// maxSends bounds the sends of one call.
const maxSends = 8

// Sent is the state of the sends of a call that has ended. The zero Sent is of no sends.
type Sent struct {
	Unanswered bool    // one may have been applied, or may still be applied, even if another one was answered
	Flight     *Flight // nil if none is in flight or in doubt
}

// Call is one call to a store. It is used once. Except for mu, and what mu guards, its fields belong to the goroutine
// that calls Do.
type Call struct {
	Sent

	sender   *Sender
	terms    Terms
	began    time.Time
	deadline time.Time
	sends    int
	cause    error

	mu    sync.Mutex // guards Flight, and the state of each Try
	first Try
}

// Do makes the call r. It returns the error of the last send that failed, or an error that
// says that there was no answer. Sent says whether the call may have been applied.
func Do(ctx context.Context, s *Sender, c *Call, terms Terms, r Request) error {
	c.sender, c.terms, c.began = s, terms, time.Now()
	c.deadline = c.began.Add(terms.Budget)
	if end, ok := ctx.Deadline(); ok && !terms.Lasting && end.Before(c.deadline) {
		c.deadline = end
	}
	for t, at := &c.first, c.began; ; t, at = new(Try), time.Now() { // a store may still use the first Try
		c.sends++
		t.Caller, t.Cleaning, t.call, t.nth, t.began = ctx, terms.Cleaning, c, c.sends, at //nolint:fatcontext // the same one for each Try
		if !terms.Lasting {
			t.Gone = ctx.Done()
		}
		s.Sends.Enter()
		err := r.Send(t)
		verdict := Final // an answer is final
		if err != nil {
			verdict = s.judge(err)
		}
		paid, until, departed := t.end(context.Canceled)
		if verdict == Unknown {
			if c.Unanswered = true; !departed {
				f := c.inFlight(t)
				f.mu.Lock()
				f.end(Unanswered)
				f.mu.Unlock()
			}
		}
		s.Sends.Leave()
		switch late := err != nil && !time.Now().Before(until); {
		case err == nil:
			s.Retries.add(perCall, mostSaved)
		case late && verdict == Unknown:
			c.cause = nil // the time was over, whatever the error says
		case !late || c.cause == nil:
			c.cause = err // otherwise the earlier failure says more
		}
		// No caller would wait for a command that is sent at the deadline.
		another := verdict != Final && !terms.Single && c.sends < maxSends && c.gone() == nil && c.worthwhile(0)
		if another && (paid || errors.Is(err, ErrSplit) || s.Retries.Take()) {
			if c.cause == nil || c.pause() {
				continue
			}
			paid = true
		}
		if paid {
			s.Retries.Give()
		}
		if verdict != Final {
			return c.reason()
		}
		return err
	}
}

// inFlight returns the Flight of c, and makes it if there is none. t has departed.
func (c *Call) inFlight(t *Try) *Flight {
	c.mu.Lock()
	defer c.mu.Unlock()
	if t.departed = true; c.Flight == nil {
		c.Flight = &Flight{sender: c.sender}
	}
	return c.Flight
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
	return Gone(c.first.Caller)
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

// pause waits after a send that failed: 5 ms, then twice as long each time, half of it random, because the callers
// that fail together must not return together. It reports false if the time is over by then, or the caller has left.
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
	case <-c.first.Gone:
		return false
	}
}

// reason returns the error of a call that ends without an answer. If the caller left before its
// deadline, or made the call just before it, the silence does not show a fault of the store.
func (c *Call) reason() error {
	gone, had := c.gone(), time.Since(c.began)
	switch {
	case gone != nil && (time.Now().Before(c.deadline) || had < c.terms.Budget/20):
		return GoneError{gone}
	case c.cause == nil && gone != nil:
		return fmt.Errorf("%w: %w", SilenceError(had), gone)
	case c.cause == nil:
		return SilenceError(min(had, c.terms.Budget))
	case gone != nil:
		return fmt.Errorf("%w: %w", c.cause, gone)
	case c.sends > 1:
		return fmt.Errorf("not served in %d tries, the last failure: %w", c.sends, c.cause)
	default:
		return c.cause
	}
}
