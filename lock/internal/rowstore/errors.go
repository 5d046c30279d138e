package rowstore

import (
	"errors"
	"fmt"

	"github.com/httplatch/httplatch/lock"
)

// Answer is the meaning of a database error, for its caller and for an operator.
type Answer struct {
	Refused bool   // the statement had no effect
	Class   string // for [lock.Class]; "" if it has none
	Means   error  // lock.ErrDenied if only an operator can repair it, lock.ErrFull, or nil
	Cure    string // may be ""
}

// Cures that all databases have.
const (
	NoTable  = "the table is not there: call Migrate, or run Schema"
	NoColumn = "the table lacks a column: it is of another version, or not a store's: compare it with Schema, or name another one by WithTable"
)

// Errors makes the errors of a store.
type Errors struct {
	Store  string // the name of its package
	Answer func(err error) Answer
}

// Of converts the error of a call to an error of [lock.Store], and nil to nil.
func (e Errors) Of(err error) error {
	switch {
	case err == nil, errors.Is(err, lock.ErrNotApplied):
		return err
	case !e.Answer(err).Refused:
		return fmt.Errorf("%s: %w", e.Store, e.Classed(err))
	default:
		return e.NotApplied(err)
	}
}

// NotApplied returns the error of a call that had no effect.
func (e Errors) NotApplied(err error) error {
	return fmt.Errorf("%w: %s: %w", lock.ErrNotApplied, e.Store, e.Explain(err))
}

// Explain adds a class, a cure, and its meaning to the Locker, unless err was explained before.
func (e Errors) Explain(err error) error {
	is := e.Answer(err)
	if errors.Is(err, lock.ErrDenied) {
		return e.Classed(err)
	}
	if err = e.Classed(err); is.Cure != "" {
		err = fmt.Errorf("%s: %w", is.Cure, err)
	}
	if is.Means != nil {
		err = fmt.Errorf("%w: %w", is.Means, err)
	}
	return err
}

// Permanent returns the error of a transaction of work that was rolled back, and would be again.
func (e Errors) Permanent(why error) error {
	return fmt.Errorf("%w: %s: the work's transaction was rolled back: %w", lock.ErrNotApplied, e.Store, why)
}

// Transient returns the error of a transaction of work that was rolled back, and may succeed later.
func (e Errors) Transient(why error) error {
	return fmt.Errorf("%w: %w: %s: the work's transaction was rolled back: %w", lock.ErrNotApplied, lock.ErrUnavailable, e.Store, why)
}

// NotBegun returns the error of a transaction that was not begun.
func (e Errors) NotBegun(err error) error {
	return fmt.Errorf("%w: %s: the work's transaction was not begun: %w", lock.ErrNotApplied, e.Store, e.Explain(err))
}

// Classed gives err its class. Errors of contexts get theirs from [lock.Class].
func (e Errors) Classed(err error) error {
	if class := e.Answer(err).Class; class != "" {
		return Classed(err, class)
	}
	return err
}

// Classed returns err with its class for [lock.Class].
func Classed(err error, class string) error { return classedError{err, class} }

type classedError struct {
	error
	class string
}

func (c classedError) Unwrap() error { return c.error }

func (c classedError) Class() string { return c.class }

// ErrCommit is in the error of a COMMIT.
var ErrCommit = errors.New("COMMIT has failed")
