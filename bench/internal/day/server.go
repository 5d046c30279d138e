package day

import (
	"errors"
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

// newServer returns one whose keys end on time, or if lazy is positive with the next tick of so
// long: to find those that have ended costs a look at all keys, which are many if
// answers are kept.
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

// failOver is a restart after which all is lost that was written within the last moments:
// of keys whose time is one of those when they are written. It returns their names.
func (s *server) failOver(d, lost time.Duration, times []time.Duration) (names []string) {
	s.restart(d)
	for _, key := range s.redis.Keys() {
		left := s.redis.TTL(key)
		for _, whole := range times {
			if left > whole-lost && left <= whole {
				s.redis.Del(key)
				names = append(names, key)
				break
			}
		}
	}
	return names
}
