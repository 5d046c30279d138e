package rowstore

import (
	"fmt"

	"github.com/httplatch/httplatch/lock"
)

// Classed returns err with its class for [lock.Class].
func Classed(err error, class string) error { return classedError{err, class} }

type classedError struct {
	error
	class string
}

// Unwrap returns the error.
func (c classedError) Unwrap() error { return c.error }

// Class returns a short and stable name, for metrics.
func (c classedError) Class() string { return c.class }

// CommitError is the error of a COMMIT.
type CommitError struct{ Err error }

// Error is the text of the error.
func (c CommitError) Error() string { return c.Err.Error() }

// Unwrap returns the error.
func (c CommitError) Unwrap() error { return c.Err }

// RolledBack returns two functions that make the errors of transactions of work that were rolled
// back. store is the name of the store's package. After a permanent error the work would be rolled
// back again, and after a transient one it may succeed.
func RolledBack(store string) (permanent, transient func(why error) error) {
	text := store + ": the work's transaction was rolled back"
	permanent = func(why error) error { return fmt.Errorf("%w: %s: %w", lock.ErrNotApplied, text, why) }
	transient = func(why error) error {
		return fmt.Errorf("%w: %w: %s: %w", lock.ErrNotApplied, lock.ErrUnavailable, text, why)
	}
	return permanent, transient
}
