package quorum

import "github.com/httplatch/httplatch/lock"

// TokensInFlight returns how many tokens a quorum remembers.
func TokensInFlight(q *Store) int {
	all := &q.tokens
	all.mu.Lock()
	defer all.mu.Unlock()
	return len(all.all)
}

// WithoutMajority returns a quorum that needs one vote less than a majority, a
// mistake that the tests have to catch.
func WithoutMajority(stores []lock.Store, opts ...Option) *Store {
	q := New(stores, opts...)
	q.need--
	return q
}
