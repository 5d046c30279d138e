package lock

// Candidates returns how many tokens a quorum remembers.
func Candidates(q Store) int {
	all := &quorumIn(q).candidates
	all.mu.Lock()
	defer all.mu.Unlock()
	return len(all.now)
}

// WithoutMajority returns a quorum that is content with one vote less than a
// majority: what tests of it have to catch.
func WithoutMajority(stores []Store, opts ...QuorumOption) Store {
	q := NewQuorum(stores, opts...)
	quorumIn(q).need--
	return q
}
