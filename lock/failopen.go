package lock

import (
	"context"
	"errors"
	"fmt"

	"github.com/httplatch/httplatch/lock/event"
	"github.com/httplatch/httplatch/lock/internal/clock"
	"github.com/httplatch/httplatch/lock/internal/validity"
)

// failsOpen reports whether the work of an acquire that has ended with err may run
// unprotected: the store has not served it. A store that cannot do what is asked of
// it has answered, and a caller that has left needs no work.
func (l *Locker) failsOpen(ctx context.Context, err error) bool {
	return l.cfg.failOpen && errors.Is(err, ErrUnavailable) && !errors.Is(err, errors.ErrUnsupported) && !callerGone(ctx)
}

// bypass makes e, whose claim has ended with err, a lease that protects nothing. The
// claim may have been applied, so it counts as granted while the work runs: removing
// it would let another process in as well, and duplicates in this process are refused
// by the local keys even now. Both end with the lease that would have been, so that hung
// work keeps no other caller out.
func (l *Locker) bypass(ctx context.Context, e *Lease, err error) {
	if l.cfg.detached {
		e.parent = context.WithoutCancel(e.parent)
	}
	l.core.keys.Bypass((*holder)(e)) // refuses those who have met the claim, and those who come
	l.core.keys.Share((*holder)(e), grantOf(e))
	e.validity.Bypass(clock.Now().Add(l.cfg.lease), e.setAlarm)
	l.emit(ctx, &e.identity, event.Bypassed, 0, err)
	l.logBypassed(ctx, &e.identity, err)
}

// bypassed reports whether e's work runs unprotected.
func (e *Lease) bypassed() bool { return e.local.Bypassed() }

// endBypassed says that the work of e, which ran unprotected, is over. first reports
// that it had not been said before.
func (e *Lease) endBypassed() (first bool) {
	if _, first = e.validity.End(false); !first {
		return false
	}
	defer e.locker.core.owners.Leave()
	if how := e.validity.Close(); how != validity.OpensNothing { // else it has lasted for longer than a lease, and the key is given up
		e.open(how)
	}
	return true
}

// finishBypassed is finish for a lease that protects nothing.
func (e *Lease) finishBypassed(settles bool) error {
	if e.endBypassed() && settles {
		return errBypassed
	}
	return nil
}

var errBypassed = fmt.Errorf("%w: the work runs unprotected, so there is nothing to prolong or to leave", ErrUnavailable)

// unprotected runs fn for r, whose lease protects nothing. There is no run that it
// could find, and none that others could wait for.
func (r *run) unprotected(fn func(ctx context.Context) ([]byte, error)) (receipt []byte, replayed bool, err error) {
	defer r.lease.endBypassed()
	if receipt, err = fn(r.lease.Context()); err != nil {
		return nil, false, err
	}
	return receipt, false, nil
}
