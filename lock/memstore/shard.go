package memstore

import (
	"maps"
	"math"
	"slices"
	"sync"

	"github.com/httplatch/httplatch/lock"
	"github.com/httplatch/httplatch/lock/internal/clock"
)

// visitsPerCall is the number of records that each call checks for their end. Until all records
// have been checked once, calls add at most a sixteenth to their number.
const visitsPerCall = 16

// smallMap is the size up to which a map is never replaced by a smaller one.
const smallMap = 64

// shard is a part of a memory store with its own lock.
type shard struct {
	mu      sync.Mutex
	store   *Store
	records map[string]*record // by key
	slots   []slot             // of all records, in no order
	hand    int                // the slot to check next
	over    clock.Moment       // no record ends earlier
	ahead   clock.Moment       // no record that the hand has passed ends earlier
	peak    int                // the largest number of records so far
	spare   *record            // for the next claim; may be nil
}

// slot has a copy of its record's end, so that the search for ended records reads memory in
// sequence.
type slot struct {
	over   clock.Moment
	record *record
}

func (s *shard) init(m *Store) {
	s.store = m
	s.records = make(map[string]*record)
	s.over, s.ahead = clock.Never, clock.Never
}

// live returns the record of key, nil if there is none. It removes a record that has ended.
func (s *shard) live(key string, now clock.Moment) *record {
	r := s.records[key]
	if r != nil && now >= r.over {
		s.drop(r)
		return nil
	}
	return r
}

// owned returns the record of key if it bears token.
func (s *shard) owned(key, token string, now clock.Moment) *record {
	if r := s.live(key, now); r != nil && r.token() == token {
		return r
	}
	return nil
}

// put adds a record of c, in place of old if old is not nil. The caller has taken the room for it.
func (s *shard) put(key string, c *lock.Claim, scope uint32, now clock.Moment, old *record) *record {
	if old != nil {
		s.vacate(old)
	}
	r := s.spare
	if s.spare = nil; r == nil {
		r = new(record)
	}
	r.fill(key, c, scope, now)
	s.records[r.key()] = r        // also replaces the key, which must not keep the string of old
	r.place = int32(len(s.slots)) //nolint:gosec // a shard has not so many
	s.slots = append(s.slots, slot{record: r})
	s.end(r, r.over)
	s.peak = max(s.peak, len(s.slots))
	return r
}

// end sets the end of r, to an earlier or a later time.
func (s *shard) end(r *record, over clock.Moment) {
	r.over = over
	s.slots[r.place].over = over
	s.over, s.ahead = min(s.over, over), min(s.ahead, over)
}

// vacate removes r from its slot, and moves the last record there.
func (s *shard) vacate(r *record) {
	last := len(s.slots) - 1
	moved := s.slots[last]
	s.slots[r.place], moved.record.place = moved, r.place
	s.slots[last] = slot{}
	s.slots, s.hand = s.slots[:last], min(s.hand, last)
	s.ahead = min(s.ahead, moved.over) // the hand may have been between the two
}

// drop removes r and frees its room.
func (s *shard) drop(r *record) {
	s.vacate(r)
	delete(s.records, r.key())
	s.store.room.give(r.scope, 1, r.cost())
	// Go maps and slices never shrink. Copying the last quarter of the records, after three
	// quarters have gone, costs a third of a copy for each record that has gone.
	if n := len(s.slots); s.peak > smallMap && n <= s.peak/4 {
		smaller := make(map[string]*record, n)
		maps.Copy(smaller, s.records)
		s.records, s.slots, s.peak = smaller, slices.Clone(s.slots), n
	}
	*r = record{} // callers have copies only
	s.spare = r
}

// expire checks the next records, as many as visits, and removes the ended ones. A record that has
// ended and is not removed yet is treated as absent.
func (s *shard) expire(now clock.Moment, visits int) {
	for ; visits > 0 && now >= s.over; visits-- {
		if s.hand == len(s.slots) {
			s.hand, s.over, s.ahead = 0, s.ahead, clock.Never
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

// sweep removes all records that have ended.
func (s *shard) sweep() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.expire(clock.Now(), math.MaxInt)
}

func (s *shard) keys() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	keys := make([]string, 0, len(s.records))
	for key := range s.records {
		keys = append(keys, key)
	}
	return keys
}
