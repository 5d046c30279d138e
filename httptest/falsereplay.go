package latchtest

import (
	"fmt"
	"net/http"
	"slices"
)

// requireTrueReplays panics if an answer is marked as a replay, and differs from all
// unmarked answers to the same request.
func requireTrueReplays(answers []*http.Response, empty []bool) {
	ran := make(map[string][]int) // indices of answers that are no replays
	for i, a := range answers {
		if a != nil && a.Header.Get(replayed) == "" && !refusal(a.StatusCode) {
			ran[identity(a.Request)] = append(ran[identity(a.Request)], i)
		}
	}
	for i, a := range answers {
		if a == nil || a.Header.Get(replayed) != "true" {
			continue
		}
		first := ran[identity(a.Request)]
		like := func(j int) bool { return a.StatusCode == answers[j].StatusCode && empty[i] == empty[j] }
		// If none of them ran, it is a replay of an earlier storm.
		if len(first) > 0 && !slices.ContainsFunc(first, like) {
			panic(fmt.Sprintf("latchtest: Storm: request %d got a replay with status %d, and request %d, which ran, got %d: "+
				"a framework answers outside of the guard, which has recorded something else", i, a.StatusCode, first[0], answers[first[0]].StatusCode))
		}
	}
}

const replayed = "Idempotent-Replayed"

// identity is equal for equal requests.
func identity(r *http.Request) string { return fmt.Sprint(r.Method, r.URL, r.Header) }

// refusal reports whether a guard may have answered with this status.
func refusal(status int) bool {
	switch status {
	case http.StatusConflict, http.StatusLocked, http.StatusTooEarly, http.StatusTooManyRequests, http.StatusServiceUnavailable:
		return true
	}
	return false
}
