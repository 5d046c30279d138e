package faults_test

import (
	"bytes"
	"fmt"
	"runtime"
	"slices"
	"testing"
	"time"
)

// failures are all calls that failed, and what else was wrong.
func (tr *traffic) failures() []string {
	tr.mu.Lock()
	defer tr.mu.Unlock()
	found := slices.Clone(tr.faults)
	for _, o := range tr.ops {
		if o.outcome != "" {
			found = append(found, fmt.Sprintf("%s: %s after %v", o.key, o.outcome, o.took()))
		}
	}
	return found
}

// violations are the calls that must not have ended as they did: outside of the
// window between two times nothing fails, except for what a busy machine does.
func (tr *traffic) violations(from, to time.Time) []string {
	tr.mu.Lock()
	defer tr.mu.Unlock()
	found := slices.Clone(tr.faults)
	for _, o := range tr.ops {
		if o.outcome != "" && !o.excused && (o.ended.Before(from) || o.began.After(to)) {
			found = append(found, fmt.Sprintf("outside of the window: %s, %v after its begin", o.outcome, o.began.Sub(from)))
		}
	}
	return found
}

// recover waits until every key that has only one caller was served again since
// a time, and traffic flows.
func (tr *traffic) recover(t *testing.T, since time.Time, callers []*caller) {
	t.Helper()
	for _, c := range callers {
		until(t, func() bool { return len(tr.outages(c, since)) == c.keys })
	}
	tr.flow(t, 200)
}

// outages returns, by key, the time after from at which c was served first.
func (tr *traffic) outages(c *caller, from time.Time) map[string]time.Duration {
	tr.mu.Lock()
	defer tr.mu.Unlock()
	first := make(map[string]time.Duration)
	for _, o := range tr.ops {
		if _, known := first[o.key]; !known && o.client == c.client && o.outcome == "" && o.began.After(from) {
			first[o.key] = o.ended.Sub(from)
		}
	}
	return first
}

// awaitDials waits, when t is over, until go-redis has noticed that clients of a
// server that is gone were closed: it looks once a second.
func awaitDials(t *testing.T) {
	t.Helper()
	t.Cleanup(func() {
		stacks := make([]byte, 4<<20)
		for deadline := time.Now().Add(5 * time.Second); time.Now().Before(deadline); time.Sleep(50 * time.Millisecond) {
			if !bytes.Contains(stacks[:runtime.Stack(stacks, true)], []byte("(*ConnPool).tryDial")) {
				return
			}
		}
	})
}
