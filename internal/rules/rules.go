// Package rules has the rules for the settings of a Locker. The constructors
// of package lock panic about what breaks one, and package middleware reports it
// as a mistake in a policies file.
package rules

import (
	"errors"
	"fmt"
	"time"
)

// Durations are those settings of a Locker that have to fit each other.
type Durations struct{ Lease, MaxHold, Budget time.Duration }

// Validate returns what is wrong with d.
func (d Durations) Validate() error {
	switch {
	case d.Lease < 2*d.Budget:
		return fmt.Errorf("a lease of %v is too short for a budget of %v: a claim that was answered late would be over "+
			"before its work began; the lease must be at least twice the budget", d.Lease, d.Budget)
	case d.MaxHold < d.Lease:
		return fmt.Errorf("a maximum hold of %v is shorter than the lease of %v", d.MaxHold, d.Lease)
	}
	return nil
}

// Positive returns what is wrong with a duration that has to be positive.
func Positive(d time.Duration) error {
	if d <= 0 {
		return errors.New("the duration must be positive")
	}
	return nil
}

// durationsOf is what Provide was given.
var durationsOf func(locker any) Durations

// Provide is called once, by package lock, before main begins. f returns the
// durations of a *lock.Locker. Package lock exports no such method, because
// nothing but policies files needs it, and this package cannot import lock.
func Provide(f func(locker any) Durations) (provided bool) {
	durationsOf = f
	return true
}

// DurationsOf returns the durations of a *lock.Locker.
func DurationsOf(locker any) Durations { return durationsOf(locker) }
