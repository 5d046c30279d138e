package latchtest

import (
	"net/http"
	"time"

	"github.com/httplatch/httplatch/lock"
)

// RepeatedFailure is the name of the last.
const RepeatedFailure = repeatedFailure

// Losses returns the names of the replays of Incident.
func Losses() []string {
	var names []string
	for _, l := range losses() {
		names = append(names, l.name)
	}
	return names
}

// Replay runs one of them, with what the limit is on a fast machine.
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
