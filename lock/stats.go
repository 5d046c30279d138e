package lock

// Stats are numbers of this moment, for gauges.
type Stats struct {
	Active  int // leases that are held, acquires under way, and work that runs unprotected
	Backlog int // clean-ups, releases and settles that still lack the store's answer

	// BacklogBytes is what the receipts among them hold in memory: 64 MiB at the most.
	// Above that a receipt is dropped, and an empty one settled in its place.
	BacklogBytes int64

	// Of the store, if it is one of NewMemory, alone or below NewSealed: what it
	// keeps, as WithLimits counts it. 0 for every other.
	Entries int
	Bytes   int64
}

// Stats returns the numbers of this Locker and all that share its store by
// [Locker.With]. It asks no server.
func (l *Locker) Stats() Stats {
	c := l.core
	s := Stats{Active: c.owners.count(), Backlog: int(c.reaper.count.Load()), BacklogBytes: c.reaper.bytes.Load()}
	if sized, ok := c.given.(sized); ok {
		s.Entries, s.Bytes = sized.size()
	}
	return s
}

// sized is a store in this process, which knows what it keeps.
type sized interface {
	size() (entries int, bytes int64)
}

func (m *memory) size() (entries int, bytes int64) {
	return int(m.room.entries.Load()), m.room.bytes.Load()
}

func (s *sealed) size() (entries int, bytes int64) {
	if below, ok := s.Store.(sized); ok {
		return below.size()
	}
	return 0, 0
}
