package respproxy

import (
	"bytes"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
)

// waitTimeout bounds the waits of tests for commands that should be in flight
// already. A wait that takes too long fails the test but does not end it, so
// that the waits may be used in any goroutine.
const waitTimeout = 20 * time.Second

// Match selects commands. All set fields have to match. The zero Match selects
// every command, including the handshake of new connections.
type Match struct {
	// Name is the command, in any case. Several names are separated by "|":
	// "set", "eval|evalsha".
	Name string
	// Key has to occur in the first key of the command: its first argument, or
	// the third of EVAL, EVALSHA and similar commands.
	Key string
	// Func sees the whole command, name first, and must not keep or change it.
	Func func(args [][]byte) bool
	// Skip is the number of matching commands that pass before the rule acts.
	Skip int
	// Count is the number of commands on which the rule acts. 0 means all
	// commands until the rule is removed.
	Count int
}

func (m *Match) selects(name string, args [][]byte) bool {
	if m.Name != "" && !slices.Contains(strings.Split(strings.ToLower(m.Name), "|"), name) {
		return false
	}
	if m.Key != "" && !bytes.Contains(firstKey(name, args), []byte(m.Key)) {
		return false
	}
	return m.Func == nil || m.Func(args)
}

func firstKey(name string, args [][]byte) []byte {
	at := 1
	switch name {
	case "eval", "evalsha", "eval_ro", "evalsha_ro", "fcall", "fcall_ro":
		at = 3
	}
	if len(args) <= at {
		return nil
	}
	return args[at]
}

// Rule is a Match and an Action that a Proxy applies. It is safe for concurrent use.
type Rule struct {
	match  Match
	action Action

	mu      sync.Mutex
	seen    int // matched commands, including skipped ones
	removed bool
	acted   []*exchange   // in the order of the commands
	changed chan struct{} // closed and replaced at every hit
}

// judge reports whether the rule acts on a command, and counts the command.
func (r *Rule) judge(x *exchange, args [][]byte) bool {
	if !r.match.selects(x.name, args) {
		return false
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.removed || r.match.Count > 0 && len(r.acted) == r.match.Count {
		return false
	}
	if r.seen++; r.seen <= r.match.Skip {
		return false
	}
	x.action = r.action
	r.acted = append(r.acted, x)
	close(r.changed)
	r.changed = make(chan struct{})
	return true
}

// Hits returns the number of commands on which the rule has acted.
func (r *Rule) Hits() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.acted)
}

// Wait waits until the rule has acted on n commands. These commands may not
// have reached the server yet; see [Rule.WaitLanded].
func (r *Rule) Wait(tb testing.TB, n int) {
	tb.Helper()
	timeout := time.NewTimer(waitTimeout)
	defer timeout.Stop()
	for {
		r.mu.Lock()
		hits, changed := len(r.acted), r.changed
		r.mu.Unlock()
		if hits >= n {
			return
		}
		select {
		case <-changed:
		case <-timeout.C:
			tb.Errorf("respproxy: the rule for %q acted %d times within %v, not %d times", r.match.Name, hits, waitTimeout, n)
			return
		}
	}
}

// WaitLanded waits until every command that the rule has acted on is over: the
// server has answered it, or it will never be forwarded.
func (r *Rule) WaitLanded(tb testing.TB) {
	tb.Helper()
	for _, x := range r.actedOn() {
		x.wait(tb)
	}
}

// Answers waits until every command that the rule has acted on is over, and
// returns the server's reply to each, unchanged, even if the client did not get
// the reply. It returns nil for a command that the server never got or
// answered.
func (r *Rule) Answers(tb testing.TB) [][]byte {
	tb.Helper()
	var answers [][]byte
	for _, x := range r.actedOn() {
		if x.wait(tb) {
			answers = append(answers, x.answer)
		}
	}
	return answers
}

// Deliver forwards the commands that a [Hold] holds now, in their order of
// arrival, and returns their number when the server has answered them. The rule
// still holds later commands.
func (r *Rule) Deliver(tb testing.TB) int {
	tb.Helper()
	n := 0
	for _, x := range r.actedOn() {
		if x.deliver() {
			x.wait(tb)
			n++
		}
	}
	return n
}

// Remove ends the rule. Held commands stay held until [Rule.Deliver].
func (r *Rule) Remove() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.removed = true
}

func (r *Rule) actedOn() []*exchange {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.acted)
}
