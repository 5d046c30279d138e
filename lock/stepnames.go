package lock

import (
	"slices"
	"sync"
)

// steps are the steps of one attempt.
type steps struct {
	mu    sync.Mutex
	names []string // that run or are done
	done  int
}

func (s *steps) enter(name string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if slices.Contains(s.names, name) {
		return false
	}
	s.names = append(s.names, name)
	return true
}

func (s *steps) leave(name string, done bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if done {
		s.done++
		return
	}
	s.names = slices.DeleteFunc(s.names, func(other string) bool { return other == name })
}

func (s *steps) count() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.done
}
