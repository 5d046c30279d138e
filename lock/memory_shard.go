package lock

import (
	"maps"
	"math"
	"slices"
	"sync"
)

// overPerCall is how many records that are over a call removes at the most. It is
// more than one, so that calls keep up.
const overPerCall = 32

// smallMap is how large a map may stay, whatever is left in it.
const smallMap = 64

// memoryShard is a part of a memory store that is locked as one.
type memoryShard struct {
	mu      sync.Mutex
	store   *memory
	records map[string]*memoryRecord // by key
	due     dueHeap[*memoryRecord]   // the same
	peak    int                      // the most records that it has held
}

func (s *memoryShard) init(m *memory) {
	s.store = m
	s.records = make(map[string]*memoryRecord)
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
		s.due.remove(int(old.place))
	}
	r := new(memoryRecord)
	r.fill(key, c, scope, now)
	s.records[r.key()] = r // and the key, which is not to keep the text of old
	s.due.add(r)
	s.peak = max(s.peak, len(s.due))
	return r
}

// end makes r be over at the given time, be it earlier or later than it was.
func (s *memoryShard) end(r *memoryRecord, over int64) {
	r.over = over
	s.due.fix(int(r.place))
}

// drop removes r and gives its room back.
func (s *memoryShard) drop(r *memoryRecord) {
	s.due.remove(int(r.place))
	delete(s.records, r.key())
	s.store.room.give(r.scope, 1, r.cost())
	// A Go map keeps the size it once had, and so does a slice. Moving a quarter of
	// what they held, after three quarters have gone, costs each that went a third of
	// a move.
	if n := len(s.due); s.peak > smallMap && n <= s.peak/4 {
		smaller := make(map[string]*memoryRecord, n)
		maps.Copy(smaller, s.records)
		s.records, s.due, s.peak = smaller, slices.Clone(s.due), n
	}
}

// expire removes records that are over, most of them at most. What it does not come
// to is over all the same.
func (s *memoryShard) expire(now int64, most int) {
	for ; most > 0 && len(s.due) > 0 && now >= s.due[0].over; most-- {
		s.drop(s.due[0])
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
