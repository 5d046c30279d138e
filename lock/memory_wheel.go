package lock

import (
	"math"
	"math/bits"
)

const (
	wheelLevels = 16 // of four bits each: all of an int64
	wheelSlots  = 16
)

// memoryWheel finds the records of a shard whose time has come. It is a
// hierarchical timing wheel whose smallest unit is the nanosecond: adding and
// removing a record take the same time however many there are, and a record
// that stays to its end is moved at most once a level.
//
// A record is in the level of the highest hexadecimal digit in which its end
// differs from hand, in the slot of that digit. So all records of one slot
// come before all of a later slot, and before all of higher levels.
type memoryWheel struct {
	hand     int64 // no slot that begins at or before it is in use
	wake     int64 // no slot begins before it
	due      *memoryRecord
	occupied [wheelLevels]uint16 // by slot; a bit may outlive the records of its slot
	slots    [wheelLevels][wheelSlots]*memoryRecord
}

func (w *memoryWheel) init() { w.wake = math.MaxInt64 }

// add adds r, which must not be over yet.
func (w *memoryWheel) add(r *memoryRecord) {
	level := (bits.Len64(uint64(r.over^w.hand)) - 1) / 4 //nolint:gosec // neither is negative
	slot := r.over >> (4 * level) % wheelSlots
	w.occupied[level] |= 1 << slot
	w.wake = min(w.wake, r.over>>(4*level)<<(4*level))

	head := &w.slots[level][slot]
	if r.next = *head; r.next != nil {
		r.next.link = &r.next
	}
	*head, r.link = r, head
}

// remove removes r if it is in the wheel.
func (w *memoryWheel) remove(r *memoryRecord) {
	if r.link == nil {
		return
	}
	*r.link = r.next
	if r.next != nil {
		r.next.link = r.link
	}
	r.next, r.link = nil, nil
}

// pop removes and returns a record that may be over at now, nil if none is.
func (w *memoryWheel) pop(now int64) *memoryRecord {
	for w.due == nil {
		if now < w.wake || !w.turn(now) {
			// Nothing lies between the two, so the hand may jump: the nearer it
			// is to a record's end, the fewer times that will be moved.
			w.hand = now
			return nil
		}
	}
	r := w.due
	w.remove(r)
	return r
}

// turn moves the hand to the next slot in use and makes its records due, or
// reports that this slot has not begun at now.
func (w *memoryWheel) turn(now int64) bool {
	for level, used := range w.occupied {
		digits := w.hand >> (4 * level)
		// Bits up to the hand's own digit are of slots that it has passed.
		used = used >> (digits%wheelSlots + 1) << (digits%wheelSlots + 1)
		if used == 0 {
			continue
		}
		slot := bits.TrailingZeros16(used)
		begin := (digits&^(wheelSlots-1) | int64(slot)) << (4 * level)
		if begin > now {
			w.wake = begin
			return false
		}
		w.hand = begin
		w.occupied[level] &^= 1 << slot
		if w.due = w.slots[level][slot]; w.due != nil {
			w.due.link, w.slots[level][slot] = &w.due, nil
		}
		return true
	}
	w.wake = math.MaxInt64
	return false
}
