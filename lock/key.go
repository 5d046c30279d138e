package lock

import (
	"errors"
	"fmt"
	"sync"

	"github.com/httplatch/httplatch/internal/keytext"
	"github.com/httplatch/httplatch/internal/requestinfo"
)

// Key composes the key that middleware.Lock(l, name, ...) uses: "user=42" for
// Key("user", "42"), "order=7&eu" for Key("order", "7", "eu"). A worker that
// calls [Locker.Do] with it and a route of the same name exclude each other.
//
// Key is injective over name and parts: "&", "=", "~" and "#" inside them are
// escaped ("~26"), so no choice of values makes two different identities meet.
// An empty part is a part like any other: all callers whose ID is "" have the same
// key. So refuse a request without an ID, as the functions of package keyfunc do.
func Key(name string, parts ...string) string {
	return keytext.Compose(name, parts...)
}

func validKey(key string) error {
	switch {
	case key == "":
		return errors.New("lock: empty key: compose it with lock.Key")
	case len(key) > keytext.MaxBytes:
		return fmt.Errorf("lock: key of %d bytes: at most %d are allowed; hash what is long", len(key), keytext.MaxBytes)
	}
	return nil
}

// validLock is validKey for mutual exclusion.
func validLock(key string) error {
	if keytext.IsRecord(key) {
		return fmt.Errorf("lock: key begins with %q, which is kept for receipts; compose it with lock.Key", keytext.RecordPrefix)
	}
	return validKey(key)
}

// entryName is the name of a key in the store: the key itself, or a hash of it for Once.
type entryName string

// identity names the key of a lease.
type identity struct {
	entry    entryName
	record   *record      // of Once; nil for mutual exclusion
	observed *observation // nil if there is neither an observer nor an origin
}

// label returns the key as the caller gave it.
func (i *identity) label() string {
	if i.record != nil {
		return i.record.label
	}
	return string(i.entry)
}

// name returns the guard's name, or the name part of the key.
func (i *identity) name() string {
	if i.record != nil && i.record.owner != "" {
		return requestinfo.Guard(i.record.owner)
	}
	return keytext.Name(i.label())
}

// fingerprint is empty for mutual exclusion.
func (i *identity) fingerprint() []byte {
	if i.record != nil {
		return i.record.print
	}
	return nil
}

// attempt is above 1 for a run that took over from another.
func (i *identity) attempt() int {
	if i.record != nil {
		return i.record.attempt
	}
	return 1
}

// record is the part of a lease that only Once has.
type record struct {
	run   any    // for runOf
	label string // the key as the caller gave it
	scope string // whose work it is
	print []byte // the fingerprint, in room if it fits; one of package middleware does
	room  [48]byte
	owner string // of the entry; "": as for a lock

	// Written before the lease is granted.
	replaces string // token of the abandoned entry to take over
	attempt  int

	effects effects
}

// forgottenOnCrash reports whether a crash of the holder leaves no record: a transaction
// without a receipt did not happen. There is a record once [Commit] was called, while a call
// is in doubt, and in a takeover.
func (r *record) forgottenOnCrash(inTx bool) bool {
	return inTx && r.attempt == 1 && !r.effects.possible()
}

// effects says whether a run may have had an effect, so that a failure does not free its key.
type effects struct {
	mu        sync.Mutex
	committed bool
	doubts    int    // calls that may have had an effect elsewhere
	doubtful  []byte // the receipt of a run that failed during such calls
	freed     bool   // the run ended without a receipt, so the key is free for the next
}

// free notes that the run ends without a receipt, unless it may have had an effect
// ([Commit], [run.Doubt]), and reports whether it does. Nothing can be committed after that.
func (f *effects) free() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.freed = !f.committed && f.doubts == 0
	return f.freed
}

func (f *effects) wasFreed() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.freed
}

// receipt returns the receipt of a run that has failed and is not free.
func (f *effects) receipt() []byte {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.doubts == 0 {
		return nil
	}
	return f.doubtful
}

func (f *effects) wasCommitted() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.committed
}

// dispel takes back one doubt. There is none if the call came after a settled answer: it was
// not counted.
func (f *effects) dispel() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.doubts = max(0, f.doubts-1)
}

// possible reports whether a failure of the run no longer implies that it had no effect.
func (f *effects) possible() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.committed || f.doubts > 0
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
