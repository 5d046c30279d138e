package day

import (
	"strconv"
	"time"

	wire "github.com/alicebob/miniredis/v2/server"
	"github.com/redis/go-redis/v9"

	"github.com/httplatch/httplatch/bench/internal/peer"
)

var (
	setAndExpire     = redis.NewScript(peer.SetAndExpire).Hash()
	compareAndDelete = redis.NewScript(peer.CompareAndDelete).Hash()
)

// script executes a script of the locks by hand in place of the interpreter, which is made anew
// for each call: that took two thirds of their day. It reports false for any other command.
func (s *server) script(to *wire.Peer, cmd string, args ...string) bool {
	if cmd != "EVALSHA" || args[0] != setAndExpire && args[0] != compareAndDelete {
		return false
	}
	s.scripts.Lock() // a server executes one at a time
	defer s.scripts.Unlock()
	key, token, done := args[2], args[3], 0
	holder, err := s.redis.Get(key)
	switch {
	case args[0] == compareAndDelete && err == nil && holder == token:
		s.redis.Del(key)
		done = 1
	case args[0] == setAndExpire && err != nil:
		seconds, err := strconv.Atoi(args[4])
		if err != nil || s.redis.Set(key, token) != nil {
			return false
		}
		s.redis.SetTTL(key, time.Duration(seconds)*time.Second)
		done = 1
	}
	to.WriteInt(done)
	return true
}
