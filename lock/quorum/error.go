package quorum

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/httplatch/httplatch/lock"
)

// quorumError says why a call has not got a majority. The errors of the nodes
// are in its text, and not wrapped: what one of them is certain of is not certain.
type quorumError struct {
	call     string
	need, of int
	certain  bool  // that the call has had no effect, and will have none
	why      error // other than what nodes failed
	cause    error // why the caller left
	failed   []answer[struct{}]
}

// shortage is the error of a call that too few nodes have answered.
func (q *Store) shortage(call string) *quorumError {
	return &quorumError{call: call, need: q.need, of: len(q.given)}
}

var errBarred = fmt.Errorf("%w: an earlier release of the token is still in flight there", lock.ErrNotApplied)

func (e *quorumError) add(node int, err error) {
	if err != nil {
		e.failed = append(e.failed, answer[struct{}]{node: node, err: err})
	}
}

// Error names the nodes that failed by their index in the stores of New.
func (e *quorumError) Error() string {
	var b strings.Builder
	fmt.Fprintf(&b, "quorum: %s: ", e.call)
	if e.why != nil {
		b.WriteString(e.why.Error())
	} else {
		fmt.Fprintf(&b, "%d of %d nodes answered, %d have to agree", e.of-len(e.failed), e.of, e.need)
	}
	if e.cause != nil {
		fmt.Fprintf(&b, ": %v", e.cause)
	}
	slices.SortFunc(e.failed, func(a, b answer[struct{}]) int { return a.node - b.node })
	for _, f := range e.failed {
		fmt.Fprintf(&b, "; stores[%d]: %v", f.node, f.err)
	}
	return b.String()
}

// Unwrap returns what is true of the whole call. It is full, denied or not
// supported, if so many nodes are that the others would not do.
func (e *quorumError) Unwrap() []error {
	var all []error
	if e.certain {
		all = append(all, lock.ErrNotApplied)
	}
	if e.why != nil {
		all = append(all, e.why)
	}
	if e.cause != nil {
		all = append(all, e.cause)
	}
	for _, lasting := range []error{lock.ErrFull, lock.ErrDenied, errors.ErrUnsupported} {
		n := 0
		for _, f := range e.failed {
			if errors.Is(f.err, lasting) {
				n++
			}
		}
		if n > e.of-e.need {
			all = append(all, lasting)
		}
	}
	return all
}

// Class is that of the first node that failed and has one.
func (e *quorumError) Class() string {
	for _, f := range e.failed {
		if class := lock.Class(f.err); class != "_OTHER" {
			return "quorum of " + class
		}
	}
	return "quorum"
}
