// Package mistake carries what a guard finds wrong with the way it is mounted to a test that
// fails for it.
package mistake

// Witness is a store of a test, which guards over it report to. A report is made where the guard
// logs an error, and as often.
type Witness interface {
	Mistake(guard, text string)
}
