package faults_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/httplatch/httplatch/lock"
)

// during makes every kind of call, and then waits for the lease that cannot be
// renewed.
func (o *ordeal) during(t *testing.T, b begun) error {
	t.Helper()
	if err := o.classified(t); err != nil {
		return err
	}
	calls := map[string]func() error{
		"a claim over the other client": func() error {
			_, err := o.there.Acquire(t.Context(), "user=other")
			return unavailable(err)
		},
		"a claim of what is held": func() error {
			_, err := o.there.Acquire(t.Context(), "user=long")
			return o.taken(err)
		},
		"a run": func() error {
			_, _, err := o.there.Once(t.Context(), "order", nil, func(context.Context) ([]byte, error) {
				b.run.runs.Add(1)
				return nil, nil
			})
			return o.taken(err)
		},
		"a release": func() error {
			return unavailable(b.freed.Release(t.Context()))
		},
		"the end of a run": func() error {
			b.run.end()
			<-b.run.done
			if b.run.err != nil || string(b.run.receipt) != runAnswer {
				return fmt.Errorf("work that ran has an answer: %q, %w", b.run.receipt, wrong(b.run.err))
			}
			return nil
		},
	}
	longest, err := allWithin(calls)
	if err != nil {
		return err
	}
	o.observed.calls = max(o.observed.calls, longest)
	if o.observed.notified, err = b.brief.wasNotified(); err != nil {
		return err
	}
	if b.long.Context().Err() != nil {
		return fmt.Errorf("a lease that has long to go was given up: %w", context.Cause(b.long.Context()))
	}
	return nil
}

// taken is nil for what a claim of a key that is held has to end with: the server may write
// nothing, and still say so.
func (o *ordeal) taken(err error) error {
	switch {
	case !o.reads:
		return unavailable(err)
	case errors.Is(err, lock.ErrHeld):
		return nil
	}
	return fmt.Errorf("not %q: %w", lock.ErrHeld.Error(), wrong(err))
}

// classified makes a claim alone, so that it has the connection of the calls
// before the fault: on a new one the handshake would fail, which is certain to
// have applied nothing.
//
// A claim that was refused all the time is of unknown outcome if its last
// repetition had no answer yet when its time was over. That can happen, but not
// always.
func (o *ordeal) classified(t *testing.T) error {
	t.Helper()
	for try := 0; ; try++ {
		var err error
		longest, late := allWithin(map[string]func() error{"a claim": func() error {
			_, err = o.here.Acquire(t.Context(), "user=new")
			return unavailable(err)
		}})
		if late != nil {
			return late
		}
		o.observed.calls = max(o.observed.calls, longest)
		switch {
		case isUnknown(err) == isUnknown(o.claim):
			return nil
		case try == 5: // a busy machine may not even send a claim
			return fmt.Errorf("a claim: not %q: %w", o.claim.Error(), err)
		}
	}
}

// after: first the process that met the fault gets everything it wants, and is
// never refused by what it did itself; then others do.
func (o *ordeal) after(t *testing.T, b begun) error {
	t.Helper()
	calm := time.Now()
	for _, key := range []string{"user=new", "user=freed", "user=brief"} {
		if err := serves(t, o.here, key, calm, true); err != nil {
			return fmt.Errorf("%s in the process that met the fault: %w", key, err)
		}
	}
	o.observed.again = time.Since(calm)
	for _, key := range []string{"user=other", "user=new", "user=freed", "user=brief"} {
		if err := serves(t, o.there, key, calm, key == "user=other"); err != nil {
			return fmt.Errorf("%s in the other process: %w", key, err)
		}
	}
	o.observed.others = time.Since(calm)
	refused(t, o.there, "user=long")
	lives(t, b.long)
	return b.run.replays(t, calm, o.there, o.here)
}
