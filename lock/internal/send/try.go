package send

import (
	"context"
	"time"
)

// Try is the context of one send.
//
// It has the values of the caller's context, and does not end with it: a command that was
// written is answered all the same, and an answer is better than doubt. A store that waits for
// anything except the answer stops when Gone is closed.
//
// It ends when the budget of the call is over, or when a third of the budget has passed and the
// retry budget has a token for another send. Most sends are answered long before, so the end costs
// nothing until Done asks for it.
type Try struct {
	Caller   context.Context //nolint:containedctx // for its values
	Gone     <-chan struct{} // closed when the caller no longer waits, even before the deadline; nil if the call goes on without it
	Cleaning bool            // it cleans up, and callers come before clean-up

	call  *Call // only fields that are written once are read
	nth   int   // number of the send in the call, from 1
	began time.Time

	// Guarded by the mutex of the call.
	given    time.Time // when it was given up, for another send, which has a token; zero: it has the whole budget
	departed bool      // it counts in the Flight of the call
	over     error
	done     context.Context //nolint:containedctx // ends at the end; nil until Done is called
	cancel   context.CancelFunc
	timer    *time.Timer
}

type tryKey struct{}

// From returns the Try that ctx is, or is derived from; nil if there is none.
func From(ctx context.Context) *Try {
	t, _ := ctx.Value(tryKey{}).(*Try)
	return t
}

// Dead reports whether the [Sender] of the Try of ctx knows that token is dead.
func Dead(ctx context.Context, token string) bool {
	t := From(ctx)
	return t != nil && t.call.sender.Dead(token)
}

// GiveUp reports whether to give up the send for another one: a third of the budget has passed
// since it was written, or its connection is known to stall, and there is a token. GiveUp takes the token.
// The other send has the rest of the budget. It is the last one if answers take longer than a third of it.
func (t *Try) GiveUp(written time.Duration, stalled bool) bool {
	c := t.call
	if written < c.terms.Budget/3 && !stalled || c.terms.Single || t.nth > 1 || !c.worthwhile(0) {
		return false
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if t.given.IsZero() && t.over == nil && c.sender.Retries.Take() {
		t.given = time.Now()
	}
	return !t.given.IsZero()
}

// Deadline returns the end of the call's budget.
func (t *Try) Deadline() (deadline time.Time, ok bool) { return t.call.deadline, true }

// Done returns a channel that is closed at the end.
func (t *Try) Done() <-chan struct{} {
	c := t.call
	c.mu.Lock()
	defer c.mu.Unlock()
	if t.done == nil {
		t.done, t.cancel = context.WithCancel(context.Background()) //nolint:forbidigo // end cancels it
		turn := t.began.Add(c.terms.Budget / 3)                     // from then on, it may be given up for another send
		if c.terms.Single || c.deadline.Sub(turn) <= c.terms.Budget/20 {
			turn = c.deadline
		}
		if t.over != nil {
			t.cancel()
		} else {
			t.timer = time.AfterFunc(time.Until(turn), t.ring)
		}
	}
	return t.done.Done()
}

// AfterFunc calls f on a goroutine of its own at the end. Package context asks for it instead
// of starting a goroutine for each context that is derived from t.
func (t *Try) AfterFunc(f func()) (stop func() bool) {
	t.Done() // starts to wait for the end
	return context.AfterFunc(t.done, f)
}

// ring ends t if its time is over.
func (t *Try) ring() {
	c := t.call
	if left := time.Until(c.deadline); left > 0 && c.gone() == nil && !t.GiveUp(time.Since(t.began), false) {
		c.mu.Lock()
		defer c.mu.Unlock()
		if t.over == nil {
			t.timer.Reset(min(left, max(c.terms.Budget/3, time.Millisecond))) // looks again for a token, and whether the caller has left
		}
		return
	}
	t.end(context.DeadlineExceeded)
}

// end ends t with err, unless it is over. paid says that it was given up at the moment until, for another
// send, which has a token. Otherwise its time is over at until.
func (t *Try) end(err error) (paid bool, until time.Time, departed bool) {
	c := t.call
	c.mu.Lock()
	defer c.mu.Unlock()
	if t.over == nil {
		if t.over = err; t.done != nil {
			t.timer.Stop()
			t.cancel()
		}
	}
	if t.given.IsZero() {
		return false, c.deadline, t.departed
	}
	return true, t.given, t.departed
}

// Err is not nil after the end.
func (t *Try) Err() error {
	if !time.Now().Before(t.call.deadline) {
		t.end(context.DeadlineExceeded) // the timer may be late, or not exist
	}
	t.call.mu.Lock()
	defer t.call.mu.Unlock()
	return t.over
}

// Value returns the value in the caller's context, and t itself to this package.
func (t *Try) Value(key any) any {
	if key == (tryKey{}) {
		return t
	}
	return t.Caller.Value(key)
}
