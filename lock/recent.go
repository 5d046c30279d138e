package lock

import (
	"slices"
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

// maxRecent is how many recoveries are remembered. They are for an
// operator who looks now; an [Observer] can count or keep them.
const maxRecent = 64

// recent is the latest recoveries, the newest last. Recoveries are rare, so it
// costs no ordinary call anything.
type recent struct {
	mu  sync.Mutex
	all []Recovery
}

func (r *recent) note(kind EventKind, key string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.all = append(r.all[max(len(r.all)-maxRecent+1, 0):], Recovery{At: time.Now(), Kind: kind, Key: key})
}

// latest returns what match accepts, the newest first.
func (r *recent) latest(limit int, match func(key string) bool) []Recovery {
	r.mu.Lock()
	all := slices.Clone(r.all)
	r.mu.Unlock()
	all = slices.DeleteFunc(all, func(r Recovery) bool { return !match(r.Key) })
	slices.Reverse(all)
	return all[:min(max(limit, 0), len(all))]
}
