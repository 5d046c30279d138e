package lock

import (
	"maps"
	"math"
	"slices"
	"sync"
)

// visitsPerCall is at how many records each call looks whether they are over. Before
// all have been looked at, calls add a sixteenth more at most.
const visitsPerCall = 16

// smallMap is how large a map may stay, whatever is left in it.
const smallMap = 64

// memoryShard is a part of a memory store that is locked as one.
type memoryShard struct {
	mu      sync.Mutex
	store   *memory
	records map[string]*memoryRecord // by key
	slots   []memorySlot             // the same, in any order
	hand    int                      // the slot that is looked at next
	over    int64                    // no record is over before
	ahead   int64                    // the same of those that the hand has passed
	peak    int                      // the most records that it has held
	spare   *memoryRecord            // for the next claim, nil if there is none
}

// memorySlot keeps the end of its record next to it: the search for records that are
// over reads memory in a row.
type memorySlot struct {
	over   int64
	record *memoryRecord
}

func (s *memoryShard) init(m *memory) {
	s.store = m
	s.records = make(map[string]*memoryRecord)
	s.over, s.ahead = math.MaxInt64, math.MaxInt64
}

// live returns the record of key, nil if there is none. A record that is over
// is removed as it is met, whether or not it is its turn.
func (s *memoryShard) live(key string, now int64) *memoryRecord {
	r := s.records[key]
	if r != nil && now >= r.over {
		s.drop(r)
		return nil
	}
	return r
}

// owned returns the record of key if it bears token.
func (s *memoryShard) owned(key, token string, now int64) *memoryRecord {
	if r := s.live(key, now); r != nil && r.token() == token {
		return r
	}
	return nil
}

// put adds a record of c, in place of old if there is one. Room for it has been
// taken.
func (s *memoryShard) put(key string, c *Claim, scope uint32, now int64, old *memoryRecord) *memoryRecord {
	if old != nil {
		s.vacate(old)
	}
	r := s.spare
	if s.spare = nil; r == nil {
		r = new(memoryRecord)
	}
	r.fill(key, c, scope, now)
	s.records[r.key()] = r        // and the key, which is not to keep the text of old
	r.place = int32(len(s.slots)) //nolint:gosec // a shard has not so many
	s.slots = append(s.slots, memorySlot{record: r})
	s.end(r, r.over)
	s.peak = max(s.peak, len(s.slots))
	return r
}

// end makes r be over at the given time, be it earlier or later than it was.
func (s *memoryShard) end(r *memoryRecord, over int64) {
	r.over = over
	s.slots[r.place].over = over
	s.over, s.ahead = min(s.over, over), min(s.ahead, over)
}

// vacate takes r from its slot, which gets the last record.
func (s *memoryShard) vacate(r *memoryRecord) {
	last := len(s.slots) - 1
	moved := s.slots[last]
	s.slots[r.place], moved.record.place = moved, r.place
	s.slots[last] = memorySlot{}
	s.slots, s.hand = s.slots[:last], min(s.hand, last)
	s.ahead = min(s.ahead, moved.over) // the hand may have been between the two
}

// drop removes r and gives its room back.
func (s *memoryShard) drop(r *memoryRecord) {
	s.vacate(r)
	delete(s.records, r.key())
	s.store.room.give(r.scope, 1, r.cost())
	// A Go map keeps the size it once had, and so does a slice. Moving a quarter of
	// what they held, after three quarters have gone, costs each that went a third of
	// a move.
	if n := len(s.slots); s.peak > smallMap && n <= s.peak/4 {
		smaller := make(map[string]*memoryRecord, n)
		maps.Copy(smaller, s.records)
		s.records, s.slots, s.peak = smaller, slices.Clone(s.slots), n
	}
	*r = memoryRecord{} // what leaves the lock is a copy
	s.spare = r
}

// expire looks at so many records, one after the other round and round, and removes
// those that are over. What it has not come to is over all the same.
func (s *memoryShard) expire(now int64, visits int) {
	for ; visits > 0 && now >= s.over; visits-- {
		if s.hand == len(s.slots) {
			s.hand, s.over, s.ahead = 0, s.ahead, math.MaxInt64
			continue
		}
		if slot := s.slots[s.hand]; now >= slot.over {
			s.drop(slot.record)
		} else {
			s.ahead = min(s.ahead, slot.over)
			s.hand++
		}
	}
}

// sweep removes all records that are over.
func (s *memoryShard) sweep() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.expire(s.store.now(), math.MaxInt)
}

func (s *memoryShard) keys() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	keys := make([]string, 0, len(s.records))
	for key := range s.records {
		keys = append(keys, key)
	}
	return keys
}
