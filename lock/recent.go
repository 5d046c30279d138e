package lock

import (
	"sync"
	"time"
)

// Recovery is something that went wrong and was dealt with, or that could not
// be: what [Snapshot] remembers of it.
type Recovery struct {
	At   time.Time
	Kind EventKind // EventRecovered, EventTakenOver, EventReaped or EventLost
	Key  string    // as given to the Locker
}

// maxRecent is how many recoveries are remembered. They are for somebody who
// looks now; what is to be counted or kept, an [Observer] sees.
const maxRecent = 64

// recent is the latest recoveries, in a ring. Recoveries are rare, so it costs
// no ordinary call anything.
type recent struct {
	mu   sync.Mutex
	ring [maxRecent]Recovery
	n    int // how many there have been
}

func (r *recent) note(kind EventKind, key string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.ring[r.n%maxRecent] = Recovery{At: time.Now(), Kind: kind, Key: key}
	r.n++
}

// latest returns what match accepts, the newest first.
func (r *recent) latest(limit int, match func(key string) bool) []Recovery {
	r.mu.Lock()
	ring, n := r.ring, r.n
	r.mu.Unlock()
	var all []Recovery
	for i := n - 1; i >= max(0, n-maxRecent) && len(all) < limit; i-- {
		if found := ring[i%maxRecent]; match(found.Key) {
			all = append(all, found)
		}
	}
	return all
}
