package history_test

import (
	"fmt"
	"time"

	"github.com/httplatch/httplatch/lock"
)

// verb is the method of a store that a client calls.
type verb uint8

const (
	opClaim verb = iota
	opRenew
	opSettle
	opRelease
	opForget
	opGet
	// opFound is the first half of a claim that was answered with a free entry:
	// see history.partitions.
	opFound
	// opEnd comes when all is answered that ever is.
	opEnd
	verbs
)

func (v verb) String() string {
	return [verbs]string{"claim", "renew", "settle", "release", "forget", "get", "found", "end"}[v]
}

// call is one call of a store's method: the input of an operation.
type call struct {
	verb     verb
	key      string
	token    string
	replaces string
	held     bool // it replaces a holder, too
	receipt  string
	lease    time.Duration // of a settle, how long the receipt is kept
	linger   time.Duration
	fenced   bool

	// The moments, in ns since the history began, between which it took effect,
	// if it did. That of an unknown outcome is open to the end.
	from, to int64
}

// answer is the output of an operation.
type answer struct {
	known bool // false: it may have taken effect, may do so later, or never
	ok    bool // of the methods that answer yes or no
	entry entry
}

// entry is the part of a lock.Entry that a model compares. The other fields are checked when the
// entry is recorded: they must be as in the claim.
type entry struct {
	state   lock.State
	token   string
	receipt string
	fence   int64
	left    time.Duration
}

func entryOf(e lock.Entry) entry {
	return entry{e.State, e.Token, string(e.Receipt), e.Fence, e.Left}
}

func (c call) String() string {
	text := fmt.Sprintf("%v(%s", c.verb, c.token)
	if c.replaces != "" {
		text += " for " + c.replaces
	}
	if c.receipt != "" {
		text += " " + c.receipt
	}
	return text + ")"
}

func (a answer) describe(v verb) string {
	switch {
	case !a.known:
		return "unknown"
	case v == opClaim || v == opGet:
		return a.entry.String()
	default:
		return fmt.Sprint(a.ok)
	}
}

func (e entry) String() string {
	text := e.state.String()
	for _, part := range []string{e.token, e.receipt} {
		if part != "" {
			text += " " + part
		}
	}
	if e.fence != 0 {
		text += fmt.Sprintf(" #%d", e.fence)
	}
	if e.left != 0 {
		text += fmt.Sprintf(" for %v", e.left)
	}
	return text
}
