package memstore

import (
	"math"
	"slices"
	"strings"
	"time"

	"github.com/httplatch/httplatch/lock"
	"github.com/httplatch/httplatch/lock/internal/bounded"
)

const (
	// recordCost is what an entry takes in addition to its bytes: the record, its slot
	// in a map that is two thirds full, and what the allocator rounds up.
	recordCost = 176
	// receiptReserve is the receipt that always fits.
	receiptReserve = 1 << 10
	// roundedUp is the part of a longer receipt that counts twice: the allocator
	// rounds up to a size class or, above 32 KiB, to pages of 8 KiB.
	roundedUp = 8
	// maxTokenBytes is the longest token a Store has to keep.
	maxTokenBytes = 255
)

// record is one entry. A store of a million of them is meant to stay
// small, so it is laid out for 96 bytes and two allocations, not counting the owner.
//
// A lock is there for a moment, and costs no allocation: until it is settled its
// record is loose, of the texts that it was claimed with. One with a fingerprint
// has them in one text of its own from the beginning, as it may be kept for long.
type record struct {
	text    string // key, token and fingerprint, one after the other; the key alone if it is loose
	receipt string // or the token, if it is loose
	owner   string // of the claim: mostly the one of its Locker, which has it anyway
	lease   int64  // when the lease is over
	over    int64  // when everything is: the linger, or the keep of the receipt
	fence   int64
	scope   uint32 // a hash; see scopeShares
	reserve uint32 // room for the receipt, until it is there
	place   int32  // in the slots of its shard

	attempt  uint16
	keyLen   uint16
	tokenLen uint8
	loose    bool
	refused  bool // a receipt did not fit: the end of the record is fixed
	settled  bool
}

// fill makes r, which is empty, the record of c.
func (r *record) fill(key string, c *lock.Claim, scope uint32, now int64) {
	r.text, r.receipt, r.loose = key, c.Token, true
	if len(c.Fingerprint) > 0 {
		r.pack(c.Fingerprint)
	}
	r.owner = c.Owner
	r.lease = bounded.Later(now, c.Lease)
	r.over = bounded.Later(r.lease, c.Linger)
	r.attempt = uint16(min(c.Attempt, math.MaxUint16)) //nolint:gosec // nor is it negative
	r.scope, r.reserve = scope, reserved(c)
	r.keyLen = uint16(len(key))      //nolint:gosec // at most keytext.MaxBytes
	r.tokenLen = uint8(len(c.Token)) //nolint:gosec // at most maxTokenBytes
}

// pack gives r, which is loose, a text of its own.
func (r *record) pack(fingerprint []byte) {
	var text strings.Builder
	text.Grow(len(r.text) + len(r.receipt) + len(fingerprint))
	text.WriteString(r.text)
	text.WriteString(r.receipt)
	text.Write(fingerprint)
	r.text, r.receipt, r.loose = text.String(), "", false
}

// settle leaves a receipt in r.
func (r *record) settle(receipt string) {
	if r.loose {
		r.pack(nil)
	}
	r.settled, r.receipt = true, receipt
}

func (r *record) key() string { return r.text[:r.keyLen] }

func (r *record) token() string {
	if r.loose {
		return r.receipt
	}
	return r.text[r.keyLen:][:r.tokenLen]
}

func (r *record) fingerprint() string {
	if r.loose {
		return ""
	}
	return r.text[int(r.keyLen)+int(r.tokenLen):]
}

func (r *record) state(now int64) lock.State {
	switch {
	case now >= r.over:
		return lock.Free
	case r.settled:
		return lock.Settled
	case now < r.lease:
		return lock.Held
	}
	return lock.Abandoned
}

// entry is what callers see of r. The zero record is the zero Entry.
func (r *record) entry(now int64) lock.Entry {
	if r.text == "" {
		return lock.Entry{}
	}
	e := lock.Entry{
		Key:     r.key(),
		State:   r.state(now),
		Token:   r.token(),
		Attempt: int(r.attempt),
		Owner:   r.owner,
		Fence:   r.fence,
		Left:    time.Duration(r.over - now),
	}
	if e.State == lock.Held {
		e.Left = time.Duration(r.lease - now)
	}
	f := r.fingerprint()
	if r.loose || len(f)+len(r.receipt) == 0 {
		return e
	}
	b := make([]byte, 0, len(f)+len(r.receipt)) // one allocation for both
	b = append(append(b, f...), r.receipt...)
	if f != "" {
		e.Fingerprint = slices.Clip(b[:len(f)])
	}
	if r.receipt != "" {
		e.Receipt = b[len(f):]
	}
	return e
}

// prolong makes lease and linger end no earlier than given, and returns when r is to
// be over. One whose receipt did not fit ends when that was to end, however often it
// is tried.
func (r *record) prolong(lease, linger int64) (over int64) {
	if r.refused {
		return r.over
	}
	linger = max(linger, r.over-r.lease)
	r.lease = max(r.lease, lease)
	return bounded.Later(r.lease, time.Duration(linger))
}

// claimCost is the room that the record of c takes.
func claimCost(key string, c *lock.Claim) int64 {
	n := recordCost + len(key) + len(c.Token) + len(c.Owner) + len(c.Fingerprint)
	return int64(n) + int64(reserved(c))
}

// reserved is the room for a receipt that c takes: work that is remembered, or is
// distinguished from other work, will leave one.
func reserved(c *lock.Claim) uint32 {
	if c.Linger > 0 || len(c.Fingerprint) > 0 {
		return receiptReserve
	}
	return 0
}

// receiptCost is the room that a receipt of n bytes takes.
func receiptCost(n int) int64 { return int64(n + max(n-receiptReserve, 0)/roundedUp) }

// cost is the room that r takes.
func (r *record) cost() int64 {
	if r.settled {
		return r.settledCost(r.receipt)
	}
	return r.settledCost("") + int64(r.reserve)
}

// settledCost is the room that r takes once it is settled with receipt.
func (r *record) settledCost(receipt string) int64 {
	text := len(r.text)
	if r.loose {
		text += len(r.receipt)
	}
	return int64(recordCost+text+len(r.owner)) + receiptCost(len(receipt))
}
