package lock

import (
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/httplatch/httplatch/internal/keytext"
	"github.com/httplatch/httplatch/lock/internal/clock"
)

// outage is a time in which calls to the store fail. The zero value is none.
type outage struct {
	on          atomic.Bool
	mu          sync.Mutex
	began, last clock.Moment // the first failure, and the latest
	failures    int
}

// calm is the time without a failure after which an answer ends an outage. A store that fails every
// second call has not recovered.
const calm = 5 * time.Second

// fail notes a failure, which may begin an outage.
func (o *outage) fail() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.last = clock.Now()
	if !o.on.Load() {
		o.began, o.failures = o.last, 0
		o.on.Store(true)
	}
	o.failures++
}

// succeed notes an answer. It returns the failures of the outage that this ends, and for how long calls
// failed, or 0.
func (o *outage) succeed() (failures int, took time.Duration) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if !o.on.Load() || o.last.Since() < calm {
		return 0, 0
	}
	o.on.Store(false)
	return o.failures, time.Duration(o.last - o.began)
}

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

// names holds the names of locks that were granted: an operator may have misspelt one. A map is never
// changed, so that the many grants of known names only read it.
type names struct {
	known atomic.Pointer[map[string]bool]
}

// maxNames bounds the names. A program has few, since clients do not choose them.
const maxNames = 64

func (n *names) note(key string) {
	name := keytext.Name(key)
	for name != "" {
		old := n.known.Load()
		if old != nil && ((*old)[name] || len(*old) == maxNames) {
			return
		}
		grown := map[string]bool{name: true}
		if old != nil {
			maps.Copy(grown, *old)
		}
		if n.known.CompareAndSwap(old, &grown) {
			return
		}
	}
}
