package lock

import (
	"maps"
	"slices"
	"time"

	"github.com/httplatch/httplatch/lock/internal/clock"
)

// Snapshot shows the activity of this process at one moment, for an operator's tools. The store
// does not have these facts. Other processes are not included.
type Snapshot struct {
	Holds      []Hold     // keys of this process: the longest held first, pending claims last
	Cleanups   []Cleanup  // calls without an answer, the oldest first; see Stats.Backlog
	Recoveries []Recovery // of the last 64, the newest first
	Names      []string   // of the locks that were granted since the start, at most 64, sorted
}

// Hold is a key that this process holds or claims.
type Hold struct {
	Key     string    // as given to the Locker
	Entry   string    // the Entry.Key of the store: not Key for Locker.Once, which hashes it
	Token   string    // "" until it is granted
	Owner   string    // as claimed: for a guard, with the request that package console shows
	Since   time.Time // of the grant; zero until then
	Until   time.Time // when the lease ends unless it is renewed; zero until it is granted
	Renewed bool      // it will be renewed, as long as its work goes on
	Ending  bool      // its work is over, and the store has not confirmed the end
	Waiting int       // waiters of this process
	Set     []string  // all keys of its set, sorted; nil without one
}

// Cleanup is a call that the store did not answer, or the removal of an entry that such a call
// may have left. It is repeated in the background until it is answered.
type Cleanup struct {
	Key   string    // as given to the Locker
	Entry string    // the Entry.Key of the store
	Token string    // of the claim
	Owner string    // as claimed
	Kind  EventKind // of its last event: EventReaped, EventReleased or EventSettled
	Since time.Time
}

// Snapshot returns the activity of this Locker and of all Lockers that share its store by
// [Locker.With]: of each kind, at most the first limit items that match accepts. match gets the
// Entry and the Owner of a Hold or a Cleanup, and the Key of a Recovery, which has no owner. A
// nil match accepts all. Names are not limited. Snapshot makes no call to the store.
func (l *Locker) Snapshot(limit int, match func(entry, owner string) bool) Snapshot {
	if match == nil {
		match = func(string, string) bool { return true }
	}
	s := Snapshot{Recoveries: l.core.recent.latest(limit, match)}
	for _, k := range l.core.keys.Keys() { // all, so that a key that hangs is listed
		if e := leaseOf(k.Holder); match(e.entry, e.owner) {
			h := Hold{Key: e.Key(), Entry: e.entry, Owner: e.owner, Set: slices.Clone(e.set), Waiting: k.Waiting, Ending: k.Settling}
			if e.local.Granted() { // until then, the token belongs to the goroutine that claims
				valid := e.validity.State()
				h.Token, h.Since = e.claim.token, e.claim.grantedAt.Wall()
				h.Until, h.Renewed = valid.Until.Wall(), valid.RenewAt != clock.Never
			}
			s.Holds = append(s.Holds, h)
		}
	}
	s.Holds = first(limit, s.Holds, func(a, b Hold) int {
		if a.Since.IsZero() != b.Since.IsZero() {
			return b.Since.Compare(a.Since)
		}
		return a.Since.Compare(b.Since)
	})
	for _, d := range l.core.duties.List() {
		if match(d.Entry, d.Owner) {
			s.Cleanups = append(s.Cleanups, Cleanup{Key: d.Key, Entry: d.Entry, Token: d.Token, Owner: d.Owner, Kind: EventKind(d.Kind), Since: d.Since})
		}
	}
	s.Cleanups = first(limit, s.Cleanups, func(a, b Cleanup) int { return a.Since.Compare(b.Since) })
	if known := l.core.names.known.Load(); known != nil {
		s.Names = slices.Sorted(maps.Keys(*known))
	}
	return s
}

// first sorts all, and returns a copy of the first limit elements, none if limit is negative. The
// copy does not keep the memory of the rest.
func first[T any](limit int, all []T, order func(a, b T) int) []T {
	slices.SortFunc(all, order)
	return slices.Clone(all[:min(max(limit, 0), len(all))])
}

// Stats are the present numbers of a Locker, for gauges.
type Stats struct {
	Active  int // leases that are held, acquires under way, and work that runs unprotected
	Backlog int // clean-ups, releases and settles that still lack the store's answer

	// BacklogBytes is the memory of the receipts in the backlog, at most 64 MiB. Above that
	// a receipt is dropped, and an empty one settled in its place.
	BacklogBytes int64

	// Dropped counts the clean-ups that were given up for newer ones, above 65,536. Their
	// entries, if there are any, end with their leases. But an entry of [Locker.Once] refuses
	// other processes with [ErrAbandoned] for WithKeep, because the outcome is unknown.
	Dropped int64

	// Retries is the retry budget: the number of second sends and clean-ups that are allowed
	// now. An answered call adds a fifth, up to 1,000, and a second adds ten, up to 100. At
	// 0 a call that fails is not tried again.
	Retries int

	// Trouble is the [Class] of the failure that the last check of the store has found. It is ""
	// if the check has found none, before the first check, and for a store without a Check.
	Trouble string

	// Unfinished is the number of submissions that the last [Locker.Unfinished] has found in this
	// process; 0 before the first.
	Unfinished int

	// Entries and Bytes are the size of a store in this process, as in [Description]; 0 for
	// a server.
	Entries int
	Bytes   int64
}

// Stats returns the numbers of this Locker and all that share its store by
// [Locker.With]. It asks no server.
func (l *Locker) Stats() Stats {
	c := l.core
	duties := c.duties.Stats()
	s := Stats{
		Active: c.active.Count(), Backlog: duties.Count, BacklogBytes: duties.Bytes,
		Dropped: duties.Dropped, Retries: c.sender.Retries.Tokens(), Trouble: *c.trouble.Load(),
		Unfinished: int(c.unfinished.Load()),
	}
	about := Describe(c.store)
	s.Entries, s.Bytes = about.Entries, about.Bytes
	return s
}
