package keyfunc

import (
	"errors"
	"net/http"
)

var (
	// ErrMissing says that the request has no value for the key. It is refused with 400,
	// or the status of the [*Error] around it.
	ErrMissing = errors.New("keyfunc: the request has no key")

	// ErrSkip says that the request shall run unguarded. Of this package only [Optional]
	// returns it; your own [Func] may return it by name.
	ErrSkip = errors.New("keyfunc: the request needs no guard")
)

// Error refuses a request with its own status. The functions of this
// package return it for everything but [ErrSkip].
type Error struct {
	Status int         // of the answer, 400 to 599; 400 if it is any other
	Err    error       // the cause, for the log; never sent
	Header http.Header // sent in addition, like the WWW-Authenticate that a 401 needs; not changed
	Detail string      // names the missing or malformed value to the client, in a sentence without any value of the request
}

// Error returns the text of Err.
func (e *Error) Error() string {
	if e.Err == nil {
		return "keyfunc: " + http.StatusText(e.Status)
	}
	return e.Err.Error()
}

// Unwrap returns Err.
func (e *Error) Unwrap() error { return e.Err }

// missingError is an ErrMissing that names the missing value.
type missingError struct{ text string }

func (e *missingError) Error() string { return e.text }
func (e *missingError) Unwrap() error { return ErrMissing }
