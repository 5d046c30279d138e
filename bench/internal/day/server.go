package day

import (
	"errors"
	"fmt"
	"net"
	"sync"
	"time"

	"github.com/alicebob/miniredis/v2"
)

// server is one Redis in this process.
type server struct {
	redis   *miniredis.Miniredis
	scripts sync.Mutex // held while one is executed

	mu    sync.Mutex
	stall time.Time // until when it answers nothing
	down  time.Time // until when it accepts no connection
}

// newServer returns a server whose keys end on time, or up to lazy too early if lazy is positive:
// a server that looks for the end of each key looks at all of them for each command.
func newServer(lazy time.Duration) (s *server, stop func()) {
	s = &server{redis: miniredis.NewMiniRedis()}
	if lazy <= 0 {
		s.redis.ClockTTL(true)
		return s, func() {}
	}
	ended, over := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(over)
		tick := time.NewTicker(lazy)
		defer tick.Stop()
		for {
			select {
			case <-tick.C:
				s.redis.FastForward(lazy)
			case <-ended:
				return
			}
		}
	}()
	return s, func() { close(ended); <-over }
}

var errDown = errors.New("the server is down")

func (s *server) dial() (net.Conn, error) {
	if s.isDown() {
		return nil, errDown
	}
	conn, err := s.redis.Dial()
	if err == nil {
		s.redis.Server().SetPreHook(s.script) // a restart forgets it
	}
	return conn, err
}

func (s *server) isDown() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return time.Until(s.down) > 0
}

// awake waits until it does not stall.
func (s *server) awake() {
	for {
		s.mu.Lock()
		left := time.Until(s.stall)
		s.mu.Unlock()
		if left <= 0 {
			return
		}
		time.Sleep(left)
	}
}

// stallFor has it answer nothing for d. What comes meanwhile is answered then.
func (s *server) stallFor(d time.Duration) {
	s.mu.Lock()
	s.stall = time.Now().Add(d)
	s.mu.Unlock()
}

// restart has it gone for d. It has all that it had.
func (s *server) restart(d time.Duration) {
	s.mu.Lock()
	s.down = time.Now().Add(d)
	s.mu.Unlock()
	s.redis.Close()
}

// entry is a key's value at a replica.
type entry struct {
	value  string
	fields map[string]string // of a hash
	left   time.Duration
}

// failOver has a replica serve in the place of the server, which is gone for d. What was written
// in the last lost is not at the replica: keys that were claimed are free, and keys that were
// renewed, settled or given back are as they were before. It returns the keys that are free.
func (s *server) failOver(d, lost time.Duration) (forgotten []string) {
	replica := make(map[string]entry)
	for _, key := range s.redis.Keys() {
		e := entry{left: s.redis.TTL(key)}
		if value, err := s.redis.Get(key); err == nil {
			e.value = value
		} else if fields, err := s.redis.HKeys(key); err == nil {
			e.fields = make(map[string]string)
			for _, f := range fields {
				e.fields[f] = s.redis.HGet(key, f)
			}
		} else {
			panic(fmt.Sprintf("%s is neither a string nor a hash", key))
		}
		replica[key] = e
	}
	time.Sleep(lost)
	s.restart(d)
	for _, key := range s.redis.Keys() {
		if _, ok := replica[key]; !ok {
			forgotten = append(forgotten, key)
		}
	}
	s.redis.FlushAll()
	for key, e := range replica {
		if e.fields == nil {
			_ = s.redis.Set(key, e.value) // fails for keys of another type only
		}
		for f, value := range e.fields {
			s.redis.HSet(key, f, value)
		}
		if e.left > 0 {
			s.redis.SetTTL(key, e.left)
		}
	}
	return forgotten
}
