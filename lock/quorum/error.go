package quorum

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/httplatch/httplatch/lock"
)

// quorumError is the error of a call without a majority. It has the errors of the nodes in its
// text and does not wrap them: the certainty of one node says nothing about the whole call.
type quorumError struct {
	call     string
	need, of int
	certain  bool  // the call has had no effect, and will have none
	why      error // a reason other than the nodes' errors
	cause    error // the cause for which the caller left
	failed   []answer[struct{}]
}

// shortage returns the error of a call that too few nodes have answered.
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

// Unwrap returns the errors of the whole call. They include ErrFull, ErrDenied or ErrUnsupported if
// the nodes without this error are not a majority.
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

// Class returns the class of the first failed node that has one.
func (e *quorumError) Class() string {
	for _, f := range e.failed {
		if class := lock.Class(f.err); class != "_OTHER" {
			return "quorum of " + class
		}
	}
	return "quorum"
}
