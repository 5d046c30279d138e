package lock

import (
	"slices"
	"time"

	"github.com/httplatch/httplatch/lock/event"
)

// Snapshot is what this process does at one moment, for an operator's tools:
// what its store cannot tell, or does not. It says nothing of other processes.
type Snapshot struct {
	Holds      []Hold     // keys that this process has, the longest held first and those that it only claims last
	Cleanups   []Cleanup  // what the store has not answered yet, the oldest first; see Stats.Backlog
	Recoveries []Recovery // of the last 64, the newest first
}

// Hold is a key that this process has or is about to have.
type Hold struct {
	Key     string    // as given to the Locker
	Entry   string    // the Entry.Key of the store: not Key for Locker.Once, which hashes it
	Token   string    // "" until it is granted
	Owner   string    // as claimed: of a guard's request what package console shows of it
	Since   time.Time // of the grant; zero until then
	Until   time.Time // when the lease ends unless it is renewed; zero until it is granted
	Renewed bool      // it will be renewed, as long as its work goes on
	Ending  bool      // its work is over, and only the store's answer to that is missing
	Waiting int       // callers of this process that queue for the key
}

// Cleanup is a call that the store did not answer, or what such a call may have
// left behind. It is repeated in the background until it is answered.
type Cleanup struct {
	Key   string     // as given to the Locker
	Entry string     // the Entry.Key of the store
	Token string     // of the claim
	Owner string     // as claimed
	Kind  event.Kind // what it will end with: event.Reaped, event.Released or event.Settled
	Since time.Time
}

// Snapshot returns what this Locker and those that share its store by
// [Locker.With] are doing, the first limit of each kind, and only of keys that
// match accepts: it is asked about Entry and Owner of a Hold and a Cleanup, and about
// the Key of a Recovery, which has no owner. A nil match accepts all. It asks nothing of the store.
func (l *Locker) Snapshot(limit int, match func(entry, owner string) bool) Snapshot {
	if match == nil {
		match = func(string, string) bool { return true }
	}
	return Snapshot{
		Holds:      l.core.holds(limit, match),
		Cleanups:   l.core.cleanups(limit, match),
		Recoveries: l.core.recent.latest(limit, match),
	}
}

// holds lists the first of the keys that match accepts, pending or granted. It examines
// all: an operator looks for the one that hangs.
func (c *core) holds(limit int, match func(entry, owner string) bool) []Hold {
	var all []Hold
	for k := range c.keys.Keys() {
		if e := (*Lease)(k.Holder); match(string(e.entry), e.claimant()) {
			h := holdOf(e)
			h.Waiting, h.Ending = k.Waiting, k.Ending
			all = append(all, h)
		}
	}
	return first(limit, all, func(a, b Hold) int {
		if a.Since.IsZero() != b.Since.IsZero() {
			return b.Since.Compare(a.Since)
		}
		return a.Since.Compare(b.Since)
	})
}

// first sorts all, and copies the first of them, none if limit is negative: the
// rest may be many.
func first[T any](limit int, all []T, order func(a, b T) int) []T {
	slices.SortFunc(all, order)
	return slices.Clone(all[:min(max(limit, 0), len(all))])
}

// holdOf is what others may know of e. Until it is granted, its token changes and
// belongs to the goroutine that claims.
func holdOf(e *Lease) Hold {
	h := Hold{Key: e.label(), Entry: string(e.entry), Owner: e.claimant()}
	if e.local.Granted() {
		h.Token, h.Since = e.claim.token, e.claim.grantedAt.Wall()
		renewed, until := e.validity.Renewable()
		h.Until, h.Renewed = until.Wall(), renewed
	}
	return h
}

// cleanups lists the first of the clean-ups that match accepts.
func (c *core) cleanups(limit int, match func(entry, owner string) bool) []Cleanup {
	var all []Cleanup
	for _, t := range c.cleaner.List() {
		if match(t.Entry, t.Owner) {
			all = append(all, Cleanup{Key: t.Key, Entry: t.Entry, Token: t.Token, Owner: t.Owner, Kind: event.Kind(t.Kind), Since: t.Since})
		}
	}
	return first(limit, all, func(a, b Cleanup) int { return a.Since.Compare(b.Since) })
}

// Stats are numbers of this moment, for gauges.
type Stats struct {
	Active  int // leases that are held, acquires under way, and work that runs unprotected
	Backlog int // clean-ups, releases and settles that still lack the store's answer

	// BacklogBytes is what the receipts among them hold in memory: 64 MiB at the most.
	// Above that a receipt is dropped, and an empty one settled in its place.
	BacklogBytes int64

	// Dropped is how many clean-ups were given up since the Locker was made, because
	// there were 65,536 and a new one came. Their entries, if there are any, end with
	// their leases; those of [Locker.Once] say for WithKeep after that that the outcome is
	// not known, and refuse other processes with [ErrAbandoned].
	Dropped int64

	// Retries is what the retry budget has: how often the Locker may send a call again,
	// or clean up, right now. An answered call adds a fifth, up to 1,000, and a second
	// adds ten, up to 100. At 0 a call that fails is not tried again.
	Retries int

	// Trouble is the [Class] of what the last check of the store has found, "" if it was
	// nothing, if there was none yet, and if the store is no [Checker].
	Trouble string

	// What the store keeps in this process, as [Description] has it. 0 for a server's.
	Entries int
	Bytes   int64
}

// Stats returns the numbers of this Locker and all that share its store by
// [Locker.With]. It asks no server.
func (l *Locker) Stats() Stats {
	c := l.core
	s := Stats{
		Active: c.owners.Count(), Backlog: c.cleaner.Count(), BacklogBytes: c.backlog.bytes.Load(),
		Dropped: c.cleaner.Dropped(), Retries: c.sender.Retries.Tokens(), Trouble: c.checks.Class(),
	}
	about := Describe(c.store)
	s.Entries, s.Bytes = about.Entries, about.Bytes
	return s
}
