package history_test

import (
	"fmt"
	"sync"
)

// room is a group of clients that meet at one key at a time. They go on to the next key after a
// number of operations, or when the key is worn out: each unknown outcome multiplies the possible
// orders, and a lasting receipt does not change any more.
type room struct {
	name string

	mu     sync.Mutex
	number int
	turns  int
	wear   int
}

const (
	turnsOnAKey = 120
	wearOfAKey  = 6
)

// next returns the key of the next turn; wear is that of the last one.
func (r *room) next(wear int) string {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.turns++
	r.wear += wear
	if r.turns > turnsOnAKey || r.wear > wearOfAKey {
		r.number, r.turns, r.wear = r.number+1, 0, 0
	}
	return fmt.Sprintf("%s-%d", r.name, r.number)
}
