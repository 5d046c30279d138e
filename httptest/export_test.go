package latchtest

import (
	"net/http"
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

// RepeatedFailure is the name of the last subtest of Incident.
const RepeatedFailure = repeatedFailure

// Losses returns the names of the replays of Incident.
func Losses() []string {
	var names []string
	for _, l := range losses() {
		names = append(names, l.name)
	}
	return names
}

// Replay runs one subtest of Incident, with its limit on a fast machine.
func Replay(t Reporter, name string, wire func(lock.Store) http.Handler, newRequest func() *http.Request) {
	t.Helper()
	if name == RepeatedFailure {
		replayFailure(t, 2*time.Second, wire, newRequest)
		return
	}
	for _, l := range losses() {
		if l.name == name {
			l.replay(t, 2*time.Second, wire, newRequest)
			return
		}
	}
	t.Fatalf("no loss %s", name)
}
