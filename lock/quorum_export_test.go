package lock

// TokensInFlight returns how many tokens a quorum remembers.
func TokensInFlight(q Store) int {
	all := &quorumIn(q).tokens
	all.mu.Lock()
	defer all.mu.Unlock()
	return len(all.all)
}

// WithoutMajority returns a quorum that is content with one vote less than a
// majority: what tests of it have to catch.
func WithoutMajority(stores []Store, opts ...QuorumOption) Store {
	q := NewQuorum(stores, opts...)
	quorumIn(q).need--
	return q
}
