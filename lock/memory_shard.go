package lock

import (
	"maps"
	"math"
	"sync"
)

// visitsPerCall bounds what a call does about records that are over. It is
// more than a record is visited in its life, so that calls keep up.
const visitsPerCall = 32

// spareRecords is how many records of a shard are kept for the next claims: the
// less a busy store allocates, the less often a large one is marked.
const spareRecords = 16

// smallMap is how large a map may stay, whatever is left in it.
const smallMap = 64

// memoryShard is a part of a memory store that is locked as one.
type memoryShard struct {
	mu      sync.Mutex
	store   *memory
	records map[uint64]*memoryRecord // by the hash of their key; see memoryChain
	peak    int                      // the most records that the map has held
	wheel   memoryWheel
	spare   []*memoryRecord
}

func (s *memoryShard) init(m *memory) {
	s.store = m
	s.records = make(map[uint64]*memoryRecord)
	s.spare = make([]*memoryRecord, 0, spareRecords)
	s.wheel.init()
}

// live returns the record of key, nil if there is none. A record that is over
// is removed as it is met, whether or not the wheel has come to it.
func (s *memoryShard) live(at *memoryChain, key string, now int64) *memoryRecord {
	r := at.find(key)
	if r != nil && now >= r.over {
		s.drop(at, r)
		return nil
	}
	return r
}

// owned returns the record of key if it bears token.
func (s *memoryShard) owned(at *memoryChain, key, token string, now int64) *memoryRecord {
	if r := s.live(at, key, now); r != nil && r.token() == token {
		return r
	}
	return nil
}

// put adds a record of c, in place of old if there is one. Room for it has been
// taken.
func (s *memoryShard) put(at *memoryChain, key string, c *Claim, scope uint32, now int64, old *memoryRecord) *memoryRecord {
	if old != nil {
		s.wheel.remove(old)
		s.unlink(at, old)
		s.recycle(old)
	}
	r := s.fresh()
	r.fill(key, c, scope, now)
	s.link(at, r)
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
func (s *memoryShard) drop(at *memoryChain, r *memoryRecord) {
	s.wheel.remove(r)
	s.unlink(at, r)
	s.store.room.give(r.scope, 1, r.cost())
	s.recycle(r)
	// A Go map keeps the size it once had. Moving a quarter of what it held,
	// after three quarters have gone, costs each that went a third of a move.
	if n := len(s.records); s.peak > smallMap && n <= s.peak/4 {
		smaller := make(map[uint64]*memoryRecord, n)
		maps.Copy(smaller, s.records)
		s.records, s.peak = smaller, n
	}
}

func (s *memoryShard) fresh() *memoryRecord {
	n := len(s.spare)
	if n == 0 {
		return new(memoryRecord)
	}
	r := s.spare[n-1]
	s.spare = s.spare[:n-1]
	return r
}

// recycle keeps r, which is in neither the map nor the wheel any more, for the
// next claim. Nobody else has it: what leaves the lock is a copy.
func (s *memoryShard) recycle(r *memoryRecord) {
	if len(s.spare) < cap(s.spare) {
		*r = memoryRecord{}
		s.spare = append(s.spare, r)
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
			at := s.chain(s.store.hash(r.key()))
			s.drop(&at, r)
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
	for _, r := range s.records {
		for ; r != nil; r = r.same {
			keys = append(keys, r.key())
		}
	}
	return keys
}
