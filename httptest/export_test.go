package latchtest

import (
	"time"

	"github.com/httplatch/httplatch/lock"
)

// Reporter is the part of testing.T that a rule uses.
type Reporter = reporter

// Rules returns the names of all rules, with their words.
func Rules() map[string]string {
	words := make(map[string]string)
	for _, r := range rules() {
		words[r.name] = r.words
	}
	return words
}

// Run checks one rule.
func Run(t Reporter, name string, lease time.Duration, store lock.Store) {
	t.Helper()
	for _, r := range rules() {
		if r.name == name {
			r.run(t, lease, store)
			return
		}
	}
	t.Fatalf("no rule %s", name)
}
