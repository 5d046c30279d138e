package local

import "slices"

// WatchFreed returns a channel that has a value after a holder of one of keys in this process has freed it,
// until stop is called.
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

// free removes the key of h, which has no queue. It wakes no watcher after a claim that was not granted: that
// has freed no key, and may be the watcher's own.
func (s *shard) free(h *Holding) {
	delete(s.holders, h.name)
	watches := s.watches[h.name]
	if len(watches) == 0 || h.pending() {
		return
	}
	for _, c := range watches {
		select {
		case c <- struct{}{}:
		default: // it has a value already
		}
	}
}
