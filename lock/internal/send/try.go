package send

import (
	"context"
	"slices"
	"sync"
	"time"
)

// Try is the context of one send.
//
// It has the values of the caller's context, and does not end with it: a command that was
// written is answered all the same, and an answer is better than doubt. A store that waits for
// anything except the answer stops at CallerGone.
//
// It ends when the budget of the call is over, or when a third of the budget has passed and the
// retry budget has a token for another send. Most sends are answered long before, so the end costs
// nothing until Done asks for it.
type Try struct {
	call  *Call // only fields that are written once are read
	nth   int   // number of the send in the call, from 1
	began time.Time

	mu    sync.Mutex
	given time.Time // when it was given up, for another send, which has a token; zero: it has the whole budget
	over  error
	done  chan struct{} // nil until Done is called
	timer *time.Timer
	after []*func() // the arguments of AfterFunc
}

// Deadline returns the end of the call's budget.
func (t *Try) Deadline() (deadline time.Time, ok bool) { return t.call.deadline, true }

// spent reports whether there is a token for another send, and returns the end of this send's time.
func (t *Try) spent() (paid bool, until time.Time) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.given.IsZero() {
		return false, t.call.deadline
	}
	return true, t.given
}

// GiveUp reports whether to give up the send for another one: a third of the budget has passed
// since it was written, it has no answer, and there is a token. GiveUp takes the token. The other
// send has the rest of the budget. It is the last one if answers take longer than a third of the
// budget.
func (t *Try) GiveUp(written time.Duration) bool {
	return written >= t.call.terms.Budget/3 && t.GiveUpEarly()
}

// GiveUpEarly is GiveUp for a send whose connection is known to stall.
func (t *Try) GiveUpEarly() bool {
	c := t.call
	if c.terms.Once || t.nth > 1 || time.Until(c.deadline) <= c.terms.Budget/20 {
		return false
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.given.IsZero() && t.over == nil && c.sender.Retries.Take() {
		t.given = time.Now()
	}
	return !t.given.IsZero()
}

// CallerGone returns a channel that is closed when the caller no longer waits, even before the
// deadline. It is nil if the call goes on without its caller.
func (t *Try) CallerGone() <-chan struct{} {
	if t.call.terms.Lasting {
		return nil
	}
	return t.call.parent.Done()
}

// Cleaning reports whether ctx is the context of a send that cleans up, or derived from one.
// Callers come before clean-up.
func Cleaning(ctx context.Context) bool {
	t, ok := ctx.Value(tryKey{}).(*Try)
	return ok && t.call.terms.Cleaning
}

type tryKey struct{}

// Caller returns the caller's context, for its values.
func (t *Try) Caller() context.Context { return t.call.parent }

// Done returns a channel that is closed at the end.
func (t *Try) Done() <-chan struct{} {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.done == nil {
		t.done = make(chan struct{})
		if t.over != nil {
			close(t.done)
		} else {
			t.timer = time.AfterFunc(time.Until(t.turn()), t.ring)
		}
	}
	return t.done
}

// AfterFunc calls f on a goroutine of its own at the end. Package context asks for it instead
// of starting a goroutine for each context that is derived from t.
func (t *Try) AfterFunc(f func()) (stop func() bool) {
	t.Done() // starts to wait for the end
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.over != nil {
		go f()
		return func() bool { return false }
	}
	t.after = append(t.after, &f)
	return func() bool {
		t.mu.Lock()
		defer t.mu.Unlock()
		i := slices.Index(t.after, &f)
		if i < 0 {
			return false
		}
		t.after = slices.Delete(t.after, i, i+1)
		return true
	}
}

// turn returns the moment from which the send may be given up for another send.
func (t *Try) turn() time.Time {
	c := t.call
	if third := t.began.Add(c.terms.Budget / 3); !c.terms.Once && c.deadline.Sub(third) > c.terms.Budget/20 {
		return third
	}
	return c.deadline
}

// ring ends t if its time is over.
func (t *Try) ring() {
	if left := time.Until(t.call.deadline); left > 0 && t.call.gone() == nil && !t.GiveUp(time.Since(t.began)) {
		t.mu.Lock()
		defer t.mu.Unlock()
		if t.over == nil {
			t.timer.Reset(min(left, max(t.call.terms.Budget/3, time.Millisecond))) // looks again for a token, and whether the caller has left
		}
		return
	}
	t.endWith(context.DeadlineExceeded)
}

func (t *Try) endWith(err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.over != nil {
		return
	}
	t.over = err
	if t.done != nil {
		t.timer.Stop()
		close(t.done)
	}
	for _, f := range t.after {
		go (*f)()
	}
	t.after = nil
}

// Err is not nil after the end.
func (t *Try) Err() error {
	if !time.Now().Before(t.call.deadline) {
		t.endWith(context.DeadlineExceeded) // the timer may be late, or not exist
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.over
}

// Value returns the value in the caller's context, and t itself to this package.
func (t *Try) Value(key any) any {
	if key == (tryKey{}) {
		return t
	}
	return t.call.parent.Value(key)
}

// inFlight returns the Flight of c. The first call makes it.
func (c *Call) inFlight() *Flight {
	if f := c.flight.Load(); f != nil {
		return f
	}
	c.flight.CompareAndSwap(nil, &Flight{sender: c.sender})
	return c.flight.Load()
}
