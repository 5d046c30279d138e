package lock

import (
	"bytes"
	"errors"
	"fmt"
	"time"

	"github.com/httplatch/httplatch/internal/requestinfo"
	"github.com/httplatch/httplatch/lock/internal/local"
)

// heldBy returns the refusal of e, whose caller does not wait for the holder.
func heldBy(e *Lease, owner string) *RefusedError {
	return &RefusedError{Reason: ErrHeld, Entry: Entry{Key: e.Key(), State: Held, Owner: owner}}
}

// decision is a local.Decision: the result of a claim or of a run, for callers of this process that have waited
// for it. A waiter takes it over if the store would give the waiter the same answer.
type decision struct {
	entry       Entry         // refused the claim, or refuses the waiters
	fingerprint []byte        // of entry, if it is known
	err         error         // the claim was not served
	budget      time.Duration // of the claim that was not served
	failure     error         // the error of a run that has failed and leaves no receipt
	unprotected bool          // a run has ended that was not protected and leaves no receipt: no waiter repeats it
}

// grantOf returns the decision of a claim that was granted: the callers that waited for it are
// refused, because e has the key.
func grantOf(e *Lease) *decision {
	d := &decision{entry: Entry{Key: e.Key(), State: Held, Owner: requestinfo.Process(e.owner)}}
	if e.local.Granted() {
		d.fingerprint = e.fingerprint()
	}
	return d
}

// decisionOf returns the decision of e's claim, which ended with err. It is nil if err does not
// concern other callers, as when the Locker was closed.
func decisionOf(e *Lease, err error) local.Decision {
	switch refused, is := errors.AsType[*RefusedError](err); {
	case is:
		entry := refused.Entry // a copy: the caller may write to the slices of its error
		entry.Receipt, entry.Fingerprint = bytes.Clone(entry.Receipt), bytes.Clone(entry.Fingerprint)
		return &decision{entry: entry, fingerprint: entry.Fingerprint}
	case errors.Is(err, errors.ErrUnsupported), !errors.Is(err, ErrUnavailable):
		return nil
	default:
		return &decision{err: err, budget: e.locker.cfg.budget}
	}
}

// refusalFor returns the error with which d ends e's acquire, nil if d does not end it. patient
// says that e waits for holders.
func (d *decision) refusalFor(e *Lease, patient bool) error {
	switch {
	case d.failure != nil:
		return d.failure // only runs wait for a run: the keys of records have a prefix of their own
	case d.err != nil:
		if e.locker.cfg.budget > d.budget && !errors.Is(d.err, ErrDenied) {
			return nil // e has the time to ask by itself
		}
		return d.err
	}
	reason := e.run.refusal(d.entry.State, d.fingerprint, e.locker.cfg.rerun)
	if patient && !d.unprotected && errors.Is(reason, ErrHeld) {
		return nil
	}
	return reason
}

func (d *decision) Answers(e local.Lease, patient bool) bool {
	return d.refusalFor(leaseOf(e), patient) != nil
}

func (d *decision) Unserved() bool { return d.err != nil }

func (d *decision) FoundHolder() bool { return d.entry.State == Held }

// errorFor returns the error with which e's acquire ends. It shares nothing with other callers.
func (d *decision) errorFor(e *Lease) error {
	switch {
	case d.failure != nil:
		return &FailedRunError{d.failure}
	case d.err == nil:
		reason := d.refusalFor(e, false)
		if reason == nil {
			reason = ErrHeld
		}
		entry := d.entry
		entry.Fingerprint, entry.Receipt = bytes.Clone(entry.Fingerprint), bytes.Clone(entry.Receipt)
		return &RefusedError{Reason: reason, Entry: entry}
	case errors.Is(d.err, ErrUnknown):
		// The other claim was sent. Nothing was sent for e.
		return fmt.Errorf("%w: the claim of an equal call got no answer: %s", ErrUnavailable, d.err.Error())
	default:
		return d.err
	}
}
