package lock

import (
	"bytes"
	"sync"
)

// forgottenOnCrash reports whether a crash of the holder leaves no record: a transaction
// without a receipt did not happen. There is a record once [Commit] was called, while an
// effect elsewhere is possible, and in a takeover.
func (r *Run) forgottenOnCrash(inTx bool) bool {
	return inTx && r.attempt == 1 && !r.effects.now().possible()
}

// refusal returns the reason for which an entry with this state and fingerprint refuses a claim
// of r, or of a lock if r is nil. It returns nil if the claim may take the entry over.
func (r *Run) refusal(state State, fingerprint []byte, rerun bool) error {
	switch {
	case r != nil && !sameRequest(r.fingerprint, fingerprint):
		return ErrMismatch
	case state == Settled && r != nil:
		return errReplay
	case state == Settled:
		return ErrSettled
	case state == Abandoned && r != nil && rerun:
		return nil
	case state == Abandoned:
		return ErrAbandoned
	default:
		return ErrHeld
	}
}

// sameRequest compares fingerprints. An empty fingerprint equals every other.
func sameRequest(a, b []byte) bool {
	return len(a) == 0 || len(b) == 0 || bytes.Equal(a, b)
}

// effects records whether a run may have had an effect. If it may, a failure does not free its key.
type effects struct {
	mu sync.Mutex
	effectState
}

type effectState struct {
	committed       bool
	begun           bool     // the answer has begun to leave
	freed           bool     // the run ended without a receipt, so the key is free for the next
	possibleEffects int      // calls that may have had an effect elsewhere
	failedReceipt   []byte   // of a run that failed after such calls, or after its answer had begun to leave
	steps           []string // that run or are done; "" for one that has failed
}

// possible reports whether a failure of the run no longer implies that it had no effect.
func (s effectState) possible() bool { return s.committed || s.possibleEffects > 0 || s.begun }

// receipt returns the receipt that a failed run leaves if its key is not freed: the receipt of an
// answer that has begun, or of a possible effect elsewhere, or nil.
func (s effectState) receipt() (receipt []byte, elsewhere bool) {
	if s.begun {
		return s.failedReceipt, false
	}
	if s.possibleEffects > 0 {
		return s.failedReceipt, true
	}
	return nil, false
}

// now returns the present state.
func (f *effects) now() effectState {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.effectState
}

// free ends the run without a receipt and returns true, unless the run may have had an effect
// ([Commit], [Run.NotePossibleEffect], [Run.Hold]). After that, all three fail.
func (f *effects) free() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.freed = !f.possible()
	return f.freed
}

// note calls mark unless the run was freed.
func (f *effects) note(mark func()) (noted bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.freed {
		return false
	}
	mark()
	return true
}
