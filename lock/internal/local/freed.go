package local

import (
	"hash/maphash"
	"slices"
)

// Taken is the state of a key in this process.
type Taken uint8

const (
	// NotTaken says that no lease has the key.
	NotTaken Taken = iota
	// TakenUndecided says that the key is pending, or that its work is over and the store has not
	// confirmed the end. Both end within a budget.
	TakenUndecided
	// TakenHeld says that the key is held.
	TakenHeld
)

// Taken returns the state of key in this process.
func (t *Table) Taken(key string) Taken {
	s := t.shardAt(key)
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.taken(key)
}

func (s *shard) taken(key string) Taken {
	holder, taken := s.holders[key]
	switch {
	case !taken:
		return NotTaken
	case holder.undecided():
		return TakenUndecided
	default:
		return TakenHeld
	}
}

// shardAt returns the shard of key.
func (t *Table) shardAt(key string) *shard {
	return &t.shards[maphash.String(t.seed, key)%shards]
}

// WatchFreed returns a channel that has a value after one of keys has become free in this
// process, until stop is called.
func (t *Table) WatchFreed(keys []string) (freed <-chan struct{}, stop func()) {
	c := make(chan struct{}, 1)
	for _, key := range keys {
		s := t.shardAt(key)
		s.mu.Lock()
		if s.watches == nil {
			s.watches = make(map[string][]chan struct{})
		}
		s.watches[key] = append(s.watches[key], c)
		s.mu.Unlock()
	}
	return c, func() {
		for _, key := range keys {
			t.shardAt(key).unwatch(key, c)
		}
	}
}

func (s *shard) unwatch(key string, c chan struct{}) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.watches[key] = slices.DeleteFunc(s.watches[key], func(other chan struct{}) bool { return other == c })
	if len(s.watches[key]) == 0 {
		delete(s.watches, key)
	}
}

// free removes a key without a queue.
func (s *shard) free(key string) {
	delete(s.holders, key)
	for _, c := range s.watches[key] {
		select {
		case c <- struct{}{}:
		default: // it has a value already
		}
	}
}
