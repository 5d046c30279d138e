package memstore

import (
	"math"
	"slices"
	"strings"
	"time"

	"github.com/httplatch/httplatch/lock"
	"github.com/httplatch/httplatch/lock/internal/clock"
)

const (
	// recordCost is the cost of an entry in addition to its bytes: the record, its slot in a
	// map that is two thirds full, and the rounding of the allocator.
	recordCost = 176
	// receiptReserve is the size of a receipt that always fits.
	receiptReserve = 1 << 10
	// roundedUp is the number of parts of a longer receipt of which one counts twice: the
	// allocator rounds up to a size class or, above 32 KiB, to pages of 8 KiB.
	roundedUp = 8
	// maxTokenBytes is the length of the longest token.
	maxTokenBytes = 255
)

// record is one entry. A store of a million entries should stay small, so a record has 96 bytes
// and two allocations, without the owner.
//
// A lock is short, and costs no allocation: until it is settled, its record is loose and refers
// to the strings of its claim. A record with a fingerprint is packed from the beginning, because it
// may be kept for a long time: it has one string with all texts.
type record struct {
	text    string       // key, token and fingerprint, one after the other; only the key if it is loose
	receipt string       // or the token, if it is loose
	owner   string       // of the claim; mostly the Locker's own string
	lease   clock.Moment // when the lease ends
	over    clock.Moment // when the record ends: after the linger, or the keep of the receipt
	fence   int64
	scope   uint32 // a hash; see scopeShares
	reserve uint32 // room for the receipt, until there is one
	place   int32  // in the slots of its shard

	attempt  uint16
	keyLen   uint16
	tokenLen uint8
	loose    bool
	refused  bool // a receipt did not fit: the end of the record is fixed
	settled  bool
}

// fill sets r, which is empty, to the record of c.
func (r *record) fill(key string, c *lock.Claim, scope uint32, now clock.Moment) {
	r.text, r.receipt, r.loose = key, c.Token, true
	if len(c.Fingerprint) > 0 {
		r.pack(c.Fingerprint)
	}
	r.owner = c.Owner
	r.lease = now.Add(c.Lease)
	r.over = r.lease.Add(c.Linger)
	r.attempt = uint16(min(c.Attempt, math.MaxUint16)) //nolint:gosec // nor is it negative
	r.scope, r.reserve = scope, reserved(c)
	r.keyLen = uint16(len(key))      //nolint:gosec // at most keytext.MaxBytes
	r.tokenLen = uint8(len(c.Token)) //nolint:gosec // at most maxTokenBytes
}

// pack copies the texts of r, which is loose, to one string.
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

func (r *record) state(now clock.Moment) lock.State {
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

// yieldsTo reports whether c takes r over.
func (r *record) yieldsTo(c *lock.Claim, now clock.Moment) bool {
	if c.Replaces != r.token() {
		return false
	}
	state := r.state(now)
	return state == lock.Abandoned || state == lock.Held && c.ReplacesHeld
}

// entry returns r for callers. The zero record is the zero Entry.
func (r *record) entry(now clock.Moment) lock.Entry {
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

// prolong makes lease and linger end no earlier than given, and returns the end of r. A record
// whose receipt did not fit ends when the receipt would have, however often it is renewed.
func (r *record) prolong(lease clock.Moment, linger time.Duration) (over clock.Moment) {
	if r.refused {
		return r.over
	}
	linger = max(linger, time.Duration(r.over-r.lease))
	r.lease = max(r.lease, lease)
	return r.lease.Add(linger)
}

// claimCost returns the cost of c's record.
func claimCost(key string, c *lock.Claim) int64 {
	n := recordCost + len(key) + len(c.Token) + len(c.Owner) + len(c.Fingerprint)
	return int64(n) + int64(reserved(c))
}

// reserved returns the room that c reserves for a receipt. Work with a linger or a fingerprint will
// leave a receipt.
func reserved(c *lock.Claim) uint32 {
	if c.Linger > 0 || len(c.Fingerprint) > 0 {
		return receiptReserve
	}
	return 0
}

// receiptCost returns the cost of a receipt of n bytes.
func receiptCost(n int) int64 { return int64(n + max(n-receiptReserve, 0)/roundedUp) }

// cost returns the cost of r.
func (r *record) cost() int64 {
	if r.settled {
		return r.settledCost(r.receipt)
	}
	return r.settledCost("") + int64(r.reserve)
}

// settledCost returns the cost of r after it is settled with receipt.
func (r *record) settledCost(receipt string) int64 {
	text := len(r.text)
	if r.loose {
		text += len(r.receipt)
	}
	return int64(recordCost+text+len(r.owner)) + receiptCost(len(receipt))
}
