package overload

import (
	"errors"
	"strings"
	"sync/atomic"
	"time"

	"github.com/httplatch/httplatch/lock"
)

// Kind is the outcome of a call that was not served.
type Kind int

// Kinds of failures. Unavailable is everything that certainly had no effect and
// is none of the others: no connection, no time left in the queue.
const (
	Unknown Kind = iota
	Denied       // by admission
	CleanUp      // since too much is waiting for its clean-up
	Unavailable
	Held // a key that only this caller takes: the library refuses itself
	Other
	kinds
)

// Kinds are all of them.
func Kinds() []Kind { return []Kind{Unknown, Denied, CleanUp, Unavailable, Held, Other} }

// String returns the name of k in reports.
func (k Kind) String() string {
	return [...]string{"unknown", "refused by admission", "refused for clean-up", "unavailable", "held", "other"}[k]
}

func kindOf(err error) Kind {
	switch {
	case errors.Is(err, lock.ErrUnknown):
		return Unknown
	case denied(err):
		return Denied
	case errors.Is(err, lock.ErrUnavailable) && strings.Contains(err.Error(), "clean-up"):
		return CleanUp
	case errors.Is(err, lock.ErrUnavailable):
		return Unavailable
	case errors.Is(err, lock.ErrHeld):
		return Held
	}
	return Other
}

// Failures are numbers of calls, by [Kind].
type Failures [kinds]int64

// All is their sum.
func (f Failures) All() (n int64) {
	for _, of := range f {
		n += of
	}
	return n
}

func (f Failures) minus(before Failures) Failures {
	for k := range f {
		f[k] -= before[k]
	}
	return f
}

// counts has the counts of all callers.
type counts struct {
	done            atomic.Int64
	failed          [kinds]atomic.Int64
	served, refused histogram
}

func (c *counts) fail(err error) { c.failed[kindOf(err)].Add(1) }

func (c *counts) failures() (f Failures) {
	for k := range f {
		f[k] = c.failed[k].Load()
	}
	return f
}

// acquired notes what an Acquire has come to that was due so long ago.
func (c *counts) acquired(took time.Duration, err error) {
	if err == nil {
		c.served.add(took)
		return
	}
	c.refused.add(took)
	c.fail(err)
}
