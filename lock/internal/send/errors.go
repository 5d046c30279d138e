package send

import (
	"errors"
	"fmt"
	"runtime/debug"
	"time"
)

// SilenceError is a store that neither answered nor failed within a budget.
type SilenceError time.Duration

// Error returns for how long there was no answer.
func (s SilenceError) Error() string { return fmt.Sprintf("no answer within %v", time.Duration(s)) }

// Class is a short and stable name of it, to count by.
func (SilenceError) Class() string { return "silence" }

// PanicError is the error of a send in which the store panicked.
type PanicError struct {
	Value any
	Stack []byte // of the goroutine, at the panic
}

// Error returns what the store panicked with.
func (p *PanicError) Error() string { return fmt.Sprintf("the store panicked: %v", p.Value) }

// Class is a short and stable name of it, to count by.
func (*PanicError) Class() string { return "panic" }

// ErrGivenUp is the error of a store for a send that it gives up at the end of its
// time, though it may be applied.
var ErrGivenUp = errors.New("no answer in time")

// Recover is deferred by a send that returns *err. A store runs code of others, such
// as the hooks of a client: a panic in it is a failure of this send, of which nothing
// else is known, and not the end of the process.
func Recover(err *error) {
	if p := recover(); p != nil {
		*err = Panic(p)
	}
}

// Panic is the error of a send that panicked with value. It is called by what is
// deferred.
func Panic(value any) error { return &PanicError{Value: value, Stack: debug.Stack()} }
