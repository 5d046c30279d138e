package lock

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

	// What the store keeps in this process, as [Description] has it. 0 for a server's.
	Entries int
	Bytes   int64
}

// Stats returns the numbers of this Locker and all that share its store by
// [Locker.With]. It asks no server.
func (l *Locker) Stats() Stats {
	c := l.core
	s := Stats{
		Active: c.owners.Count(), Backlog: int(c.cleaner.count.Load()), BacklogBytes: c.cleaner.bytes.Load(),
		Dropped: c.cleaner.dropped.Load(), Retries: c.sender.Retries.Tokens(),
	}
	about := Describe(c.store)
	s.Entries, s.Bytes = about.Entries, about.Bytes
	return s
}
