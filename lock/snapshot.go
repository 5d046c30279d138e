package lock

import (
	"maps"
	"slices"
	"time"
)

// Store returns the store that l works on, for an operator's tools: whether it
// is an [Inspector], and what is in it. Claim through l, never past it.
func (l *Locker) Store() Store { return l.core.store }

// Snapshot is what this process does at one moment, for an operator's tools:
// what its store cannot tell, or does not. It says nothing of other processes.
type Snapshot struct {
	Holds      []Hold     // keys that this process has, the longest held first
	Cleanups   []Cleanup  // what the store has not answered yet, the oldest first
	Backlog    int        // all clean-ups, whatever their keys and however many are listed
	Recoveries []Recovery // of the last 64, the newest first
}

// Hold is a key that this process has or is about to have.
type Hold struct {
	Key     string    // as given to the Locker
	Entry   string    // the Entry.Key of the store: not Key for Locker.Once, which hashes it
	Token   string    // "" until it is granted
	Since   time.Time // of the grant; zero until then
	Until   time.Time // when the lease ends unless it is renewed; zero until it is granted
	Renewed bool      // it will be renewed, as long as its work goes on
	Ending  bool      // its work is over, and only the store's answer to that is missing
	Waiting int       // callers of this process that queue for the key
}

// Cleanup is a call that the store did not answer, or what such a call may have
// left behind. It is repeated in the background until it is answered.
type Cleanup struct {
	Key   string    // as given to the Locker
	Entry string    // the Entry.Key of the store
	Token string    // of the claim
	Kind  EventKind // what it will end with: EventReaped, EventReleased or EventSettled
	Since time.Time
}

// Snapshot returns what this Locker and those that share its store by
// [Locker.With] are doing, at most limit of each kind, and only of keys that
// match accepts: it is asked about Hold.Entry and Cleanup.Entry, and for a
// Recovery about its Key. A nil match accepts all. It asks nothing of the store.
func (l *Locker) Snapshot(limit int, match func(key string) bool) Snapshot {
	if match == nil {
		match = func(string) bool { return true }
	}
	s := Snapshot{Holds: l.core.gate.holds(limit, match), Recoveries: l.core.recent.latest(limit, match)}
	s.Cleanups, s.Backlog = l.core.reaper.list(limit, match)
	return s
}

// holds lists what match accepts of the keys that are pending or granted.
func (g *gate) holds(limit int, match func(key string) bool) []Hold {
	var all []Hold
	for i := range g.shards {
		all = g.shards[i].holds(all, limit, match)
	}
	slices.SortFunc(all, func(a, b Hold) int { return a.Since.Compare(b.Since) })
	return all
}

func (s *gateShard) holds(all []Hold, limit int, match func(key string) bool) []Hold {
	type seen struct {
		lease   *Lease
		waiting int
		ending  bool
	}
	s.mu.Lock()
	slots := make([]seen, 0, s.holders.count)
	for e := range s.holders.all() {
		found := seen{lease: e}
		if e.slot != nil {
			found.waiting, found.ending = len(e.slot.queue), e.slot.ending != nil
		}
		slots = append(slots, found)
	}
	s.mu.Unlock()
	for _, sl := range slots {
		if len(all) >= limit {
			break
		}
		if match(sl.lease.key) {
			h := sl.lease.hold()
			h.Waiting, h.Ending = sl.waiting, sl.ending
			all = append(all, h)
		}
	}
	return all
}

// hold is what others may know of e. Until it is granted, its token changes and
// belongs to the goroutine that claims.
func (e *Lease) hold() Hold {
	e.mu.Lock()
	defer e.mu.Unlock()
	h := Hold{Key: e.label(), Entry: e.key}
	if e.granted.Load() {
		h.Token, h.Since, h.Until = e.token, e.grantedAt.wall(), e.validUntil.wall()
		h.Renewed = !e.stopped && !e.capped
	}
	return h
}

// list returns what match accepts of the tasks, and the number of all. Which
// ones it finds if they are more than limit is left to chance: of tens of
// thousands nobody reads more than how many there are.
func (r *reaper) list(limit int, match func(key string) bool) (found []Cleanup, all int) {
	r.mu.Lock()
	tasks := slices.Collect(maps.Keys(r.all))
	r.mu.Unlock()
	for _, t := range tasks {
		if len(found) >= limit {
			break
		}
		if match(t.of.Entry) {
			c := t.of
			c.Since = t.born
			found = append(found, c)
		}
	}
	slices.SortFunc(found, func(a, b Cleanup) int { return a.Since.Compare(b.Since) })
	return found, len(tasks)
}
