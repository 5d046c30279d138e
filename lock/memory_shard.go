package lock

import (
	"maps"
	"math"
	"sync"
)

// visitsPerCall bounds what a call does about records that are over. It is
// more than a record is visited in its life, so that calls keep up.
const visitsPerCall = 32

// smallMap is how large a map may stay, whatever is left in it.
const smallMap = 64

// memoryShard is a part of a memory store that is locked as one.
type memoryShard struct {
	mu      sync.Mutex
	store   *memory
	records map[string]*memoryRecord // by key
	peak    int                      // the most records that the map has held
	wheel   memoryWheel
}

func (s *memoryShard) init(m *memory) {
	s.store = m
	s.records = make(map[string]*memoryRecord)
	s.wheel.init()
}

// live returns the record of key, nil if there is none. A record that is over
// is removed as it is met, whether or not the wheel has come to it.
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
		s.wheel.remove(old)
		delete(s.records, key) // or the map would keep the text of old for its key
	}
	r := new(memoryRecord)
	r.fill(key, c, scope, now)
	s.records[r.key()] = r
	s.peak = max(s.peak, len(s.records))
	s.wheel.add(r)
	return r
}

// end makes r be over at the given time, be it earlier or later than it was.
func (s *memoryShard) end(r *memoryRecord, over int64) {
	earlier := over < r.over
	r.over = over
	if earlier {
		s.wheel.remove(r)
		s.wheel.add(r)
	}
}

// drop removes r and gives its room back.
func (s *memoryShard) drop(r *memoryRecord) {
	s.wheel.remove(r)
	delete(s.records, r.key())
	s.store.room.give(r.scope, 1, r.cost())
	// A Go map keeps the size it once had. Moving a quarter of what it held,
	// after three quarters have gone, costs each that went a third of a move.
	if n := len(s.records); s.peak > smallMap && n <= s.peak/4 {
		smaller := make(map[string]*memoryRecord, n)
		maps.Copy(smaller, s.records)
		s.records, s.peak = smaller, n
	}
}

// expire removes records that are over, looking at a bounded number of them.
// What it does not come to is over all the same.
func (s *memoryShard) expire(now int64, visits int) {
	for ; visits > 0; visits-- {
		r := s.wheel.pop(now)
		switch {
		case r == nil:
			return
		case now < r.over: // prolonged since, or due in a part of the slot it was in
			s.wheel.add(r)
		default:
			s.drop(r)
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
