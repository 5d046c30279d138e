package lock

import (
	"slices"
	"sync"
	"time"
)

// Recovery is a fault and its end, as [Snapshot] lists it. The kind Recovered stands for a claim,
// or a commit ([WithTransaction]), that had no answer and whose outcome was found out.
type Recovery struct {
	At   time.Time
	Kind EventKind // EventRecovered, EventTakenOver, EventReaped or EventLost
	Key  string    // as given to the Locker
}

// maxRecent bounds the recoveries that are remembered, for an operator who looks now. An
// [Observer] can count or keep them.
const maxRecent = 64

// recent holds the latest recoveries, the newest last.
type recent struct {
	mu  sync.Mutex
	all []Recovery
}

func (r *recent) note(kind EventKind, key string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.all = append(r.all[max(len(r.all)-maxRecent+1, 0):], Recovery{At: time.Now(), Kind: kind, Key: key})
}

// latest returns the recoveries that match accepts, the newest first.
func (r *recent) latest(limit int, match func(entry, owner string) bool) []Recovery {
	r.mu.Lock()
	all := slices.Clone(r.all)
	r.mu.Unlock()
	all = slices.DeleteFunc(all, func(r Recovery) bool { return !match(r.Key, "") })
	slices.Reverse(all)
	return all[:min(max(limit, 0), len(all))]
}
