package fault

import (
	"context"
	"log/slog"
	"sync"
	"testing"
	"time"

	"github.com/httplatch/httplatch/lock"
	"github.com/httplatch/httplatch/lock/memstore"
)

// Store is a memory store behind a network whose faults a test chooses. It is safe for concurrent
// use.
type Store struct {
	calls

	// Lag is the longest time after the return of a call in which it may be applied. Do not change
	// it after a Locker was made.
	Lag time.Duration

	mu    sync.Mutex
	there lock.Store
	next  map[Op][]Func
	every map[Op]Func
	count map[Op]int
}

// New returns a store behind a network without faults.
func New() *Store {
	s := &Store{
		Lag:   5 * time.Second,
		there: memstore.New(),
		next:  make(map[Op][]Func),
		every: make(map[Op]Func),
		count: make(map[Op]int),
	}
	s.calls = calls{s.Server, s.draw}
	return s
}

// Describe is part of [lock.Describer].
func (s *Store) Describe() lock.Description { return lock.Description{MaxLag: max(s.Lag, 1)} }

func (s *Store) draw(o Op) Func {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.count[o]++
	if queue := s.next[o]; len(queue) > 0 {
		s.next[o] = queue[1:]
		return queue[0]
	}
	return s.every[o]
}

// Next queues faults for the next calls of o, one for each call; nil is none.
func (s *Store) Next(o Op, faults ...Func) *Store {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.next[o] = append(s.next[o], faults...)
	return s
}

// Every sets the fault of all other calls of methods, or of all methods if none are given; nil ends
// it.
func (s *Store) Every(f Func, methods ...Op) *Store {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(methods) == 0 {
		methods = ops
	}
	for _, o := range methods {
		s.every[o] = f
	}
	return s
}

// Skip removes the faults that are queued for the next calls of o.
func (s *Store) Skip(o Op) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.next, o)
}

// Count returns how many calls of o were made, applied or not.
func (s *Store) Count(o Op) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.count[o]
}

// Server returns the store at the other end. A late call is applied to the store that is at the
// other end when the call lands.
func (s *Store) Server() lock.Store {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.there
}

// Serve puts another store at the other end.
func (s *Store) Serve(there lock.Store) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.there = there
}

// State returns the entry of key at the server.
func (s *Store) State(t *testing.T, key string) lock.Entry {
	t.Helper()
	e, err := s.Server().Get(t.Context(), key)
	if err != nil {
		t.Fatalf("Get: %v", err)
	}
	return e
}

// Free removes the entry of key at the server, as an operator does.
func (s *Store) Free(t *testing.T, key string) {
	t.Helper()
	inspector, ok := s.Server().(lock.Inspector)
	if !ok {
		t.Fatal("the server is no Inspector")
	}
	if ok, err := inspector.Forget(t.Context(), key, s.State(t, key).Token); err != nil || !ok {
		t.Fatalf("Forget: %v, %v", ok, err)
	}
}

// Locker returns a Locker over s that logs nothing, and that is closed when tb ends.
func Locker(tb testing.TB, s lock.Store, opts ...lock.Option) *lock.Locker {
	tb.Helper()
	l := lock.New(s, append([]lock.Option{lock.WithLogger(slog.New(slog.DiscardHandler)), lock.WithBudget(10 * time.Second)}, opts...)...)
	tb.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		if err := l.Close(ctx); err != nil {
			tb.Errorf("Close: %v", err)
		}
	})
	return l
}
