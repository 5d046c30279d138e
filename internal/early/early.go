// Package early lets middleware settle a run of Locker.Once before its function
// returns: when an answer begins to leave that cannot be kept as a whole.
package early

import "context"

// Settler is a run of Locker.Once.
type Settler interface {
	// SettleEarly leaves receipt and ends the run's lease. What its function
	// returns afterwards changes nothing. It fails if the outcome of the run
	// can no longer be recorded, or is not known to be.
	SettleEarly(ctx context.Context, receipt []byte) error

	// Committed reports whether lock.Commit was called in the run.
	Committed() bool
}

// Sharer is an error of a run that has something to say to the calls which waited
// for that run in place of running.
type Sharer interface {
	error

	// Share returns what they are to get, each the same. It is called before the
	// run ends, once, and only if there are any.
	Share() error
}

// Key is the context key of the Settler.
type Key struct{}

// From returns the run that ctx is of, nil if there is none.
func From(ctx context.Context) Settler {
	s, _ := ctx.Value(Key{}).(Settler)
	return s
}
