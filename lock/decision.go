package lock

import (
	"bytes"
	"errors"
	"fmt"
	"time"

	"github.com/httplatch/httplatch/internal/oncecall"
	"github.com/httplatch/httplatch/lock/internal/local"
)

// decision is what became of a claim, or of a run, for which other callers of this
// process have waited. Where the store would answer them the same, it is theirs too.
type decision struct {
	granted bool          // the claim was, or its work runs without the store; entry says whose it is
	entry   Entry         // what refused the claim, or does refuse those who wait
	print   []byte        // the fingerprint of that, if it is known
	err     error         // the claim had no answer, or none that is of the key
	budget  time.Duration // within which it had none
	failure error         // the run has failed with this, and leaves no receipt
}

// grantOf is the decision for those who have met the claim of e, and refuses them.
func grantOf(e *Lease) *decision {
	d := &decision{granted: true, entry: Entry{State: Held, Owner: e.owner()}}
	if e.local.Granted() {
		d.print = e.fingerprint()
	}
	return d
}

// decisionOf is the decision of the claim of e, which ended with err. It is nil if
// that says nothing to others, as when the Locker was closed.
func decisionOf(e *Lease, err error) local.Decision[*holder] {
	switch refused, is := errors.AsType[*RefusedError](err); {
	case is:
		return &decision{entry: refused.Entry, print: refused.Entry.Fingerprint}
	case errors.Is(err, errors.ErrUnsupported), !errors.Is(err, ErrUnavailable):
		return nil
	default:
		return &decision{err: err, budget: e.locker.cfg.budget}
	}
}

// reason is why d ends e's acquire, nil if it does not. patient says that e waits
// for holders.
func (d *decision) reason(e *Lease, patient bool) error {
	switch {
	case d.failure != nil:
		return d.failure // only runs wait for a run: no other key begins as those of records
	case d.err != nil:
		if e.locker.cfg.budget > d.budget && !errors.Is(d.err, ErrDenied) {
			return nil // it has time enough to ask for itself
		}
		return d.err
	}
	reason := e.reasonOf(d.entry.State, d.print)
	if patient && errors.Is(reason, ErrHeld) {
		return nil
	}
	return reason
}

// reasonOf is why an entry of this state, and of a request with this fingerprint,
// refuses e; nil if it is to be taken over.
func (e *Lease) reasonOf(state State, fingerprint []byte) error {
	r := e.record
	switch {
	case r != nil && !sameRequest(r.print, fingerprint):
		return ErrMismatch
	case state == Settled && r != nil:
		return errReplay
	case state == Settled:
		return ErrSettled
	case state == Abandoned && r != nil && e.locker.cfg.rerun:
		return nil
	case state == Abandoned:
		return ErrAbandoned
	default:
		return ErrHeld
	}
}

// Answers implements local.Decision.
func (d *decision) Answers(h *holder, patient bool) bool {
	return d.reason((*Lease)(h), patient) != nil
}

// Unserved implements local.Decision.
func (d *decision) Unserved() bool { return d.err != nil }

// FoundHolder implements local.Decision.
func (d *decision) FoundHolder() bool { return d.entry.State == Held }

// Detach implements local.Decision. The caller whose claim has found the slices may write to
// them.
func (d *decision) Detach() {
	d.entry.Receipt, d.entry.Fingerprint, d.print = bytes.Clone(d.entry.Receipt), bytes.Clone(d.entry.Fingerprint), bytes.Clone(d.print)
	if s, ok := errors.AsType[oncecall.Sharer](d.failure); ok {
		d.failure = s.Share()
	}
}

// end is what e's acquire ends with. Nothing of it is shared with others.
func (d *decision) end(e *Lease) error {
	switch {
	case d.failure != nil:
		return &failedRunError{d.failure}
	case d.err == nil:
		reason := d.reason(e, false)
		if reason == nil {
			reason = ErrHeld
		}
		entry := d.entry
		entry.Fingerprint, entry.Receipt = bytes.Clone(entry.Fingerprint), bytes.Clone(entry.Receipt)
		return &RefusedError{Reason: reason, Entry: entry}
	case errors.Is(d.err, ErrUnknown):
		// Of the claim that was sent; nothing was for e.
		return fmt.Errorf("%w: the claim of an equal call got no answer: %s", ErrUnavailable, d.err.Error())
	default:
		return d.err
	}
}

// failedRunError ends the acquire of a call that has waited for a run that failed.
type failedRunError struct{ err error }

func (*failedRunError) Error() string { return "lock: the run that this call waited for has failed" }

// Class is a short and stable name of it, to count by.
func (*failedRunError) Class() string { return "failed" }

// sameRequest compares fingerprints. One that is empty equals all.
func sameRequest(a, b []byte) bool {
	return len(a) == 0 || len(b) == 0 || bytes.Equal(a, b)
}
