package send

import (
	"context"
	"slices"
	"sync"
	"time"
)

// Try is the context of one send.
//
// It does not end with the caller's context, of which it has the values: what was
// written then has to be answered all the same, and the answer is better than
// doubt. A store that waits for something else than the answer ends that wait
// with GivenUp.
//
// It ends when the budget of the call is over, or when a third of that has passed
// and the retry budget pays for another send. Most sends are answered long before,
// so the end costs nothing until Done asks for it.
type Try struct {
	call  *Call // of which only what is written once is read
	nth   int   // send of the call, from 1
	began time.Time

	mu    sync.Mutex
	paid  bool      // it has a token for another send
	until time.Time // when it is given up for that; zero: it has the whole budget
	over  error
	done  chan struct{} // nil until it is asked for
	timer *time.Timer
	after []*func() // that AfterFunc was given
}

// Deadline is when the budget of the call is over.
func (t *Try) Deadline() (deadline time.Time, ok bool) { return t.call.deadline, true }

// Until is when a store gives the send up that cannot ask GiveUp while it waits:
// after a third of the budget, if there is a token for another send, which it takes.
func (t *Try) Until() time.Time {
	turn := t.turn()
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.nth > 1 || t.over != nil || turn.Equal(t.call.deadline) || !t.pay() {
		return t.call.deadline
	}
	t.until = turn
	return turn
}

// pay reports whether there is a token for another send. t.mu is held.
func (t *Try) pay() bool {
	t.paid = t.paid || t.call.sender.Retries.Take()
	return t.paid
}

// spent reports whether another send is paid for, and until when this one had time.
func (t *Try) spent() (paid bool, until time.Time) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.until.IsZero() {
		return t.paid, t.call.deadline
	}
	return t.paid, t.until
}

// GiveUp reports whether the send is to be given up for another one, because it
// was written that long ago and has no answer: after a third of the budget, if
// there is a token, which it takes. The other one has the rest of the budget: where
// answers take longer than a third, it is the last chance.
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
	if t.until.IsZero() && t.over == nil && t.pay() {
		t.until = time.Now()
	}
	return !t.until.IsZero()
}

// GivenUp is closed when the caller waits no longer. The deadline is another
// matter. It is nil if the call goes on without its caller.
func (t *Try) GivenUp() <-chan struct{} {
	if t.call.terms.Lasting {
		return nil
	}
	return t.call.parent.Done()
}

// Cleaning reports whether ctx is of a send that is clean-up, which comes after the
// callers, or derived from one.
func Cleaning(ctx context.Context) bool {
	if t, ok := ctx.(*Try); ok {
		return t.call.terms.Cleaning
	}
	cleaning, _ := ctx.Value(cleaningKey{}).(bool)
	return cleaning
}

type cleaningKey struct{}

// Caller is the caller's context, for its values.
func (t *Try) Caller() context.Context { return t.call.parent }

// Done is closed at the end.
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
	t.Done() // which is when the end is waited for
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

// turn is when the send may be given up for another.
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
			t.timer.Reset(min(left, max(t.call.terms.Budget/3, time.Millisecond))) // to look again for a token, or whether the caller has left
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
		t.endWith(context.DeadlineExceeded) // the timer may be late, or not there
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.over
}

// Value is that of the caller's context.
func (t *Try) Value(key any) any {
	switch key {
	case flightKey{}:
		return t.call.inFlight
	case cleaningKey{}:
		return t.call.terms.Cleaning
	}
	return t.call.parent.Value(key)
}

// inFlight returns the Flight of c, which it makes for the first that asks.
func (c *Call) inFlight() *Flight {
	if f := c.flight.Load(); f != nil {
		return f
	}
	c.flight.CompareAndSwap(nil, &Flight{sender: c.sender})
	return c.flight.Load()
}
