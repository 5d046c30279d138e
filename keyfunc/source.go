package keyfunc

import (
	"errors"
	"fmt"
	"net/http"
)

// maxValue is the most bytes of a value, and of a lock's key.
const maxValue = 1024

// source names the place of a value in the texts of errors, such as "header X-User-ID". It comes
// from the program, never from the client.
type source string

// check accepts value as a key or a part of one.
func (s source) check(value, cure string) (string, error) {
	if value == "" {
		return "", s.missing(cure)
	}
	if len(value) > maxValue {
		return "", s.bad("is over 1024 bytes long; send less")
	}
	for i := range len(value) {
		// No identifier needs control characters, and the first byte of a joined key is one.
		if c := value[i]; c < ' ' || c == 0x7f {
			return "", s.bad("has control characters; send it without")
		}
	}
	return value, nil
}

func (s source) missing(cure string) error {
	return &Error{Status: http.StatusBadRequest, Err: s.missingError(cure), Detail: s.detail("is missing")} // cures are the server's, too
}

func (s source) missingError(cure string) error {
	return &missingError{"keyfunc: " + string(s) + " is missing; " + cure}
}

// bad refuses a value for the reason what, which ends with "; " and a cure by the client.
func (s source) bad(what string) error {
	return s.refuse(errors.New(what))
}

// detail is the reason for the client.
func (s source) detail(what string) string { return "The " + string(s) + " " + what + "." }

// refuse refuses a value for an error of this package.
func (s source) refuse(what error) error {
	return &Error{Status: http.StatusBadRequest, Err: fmt.Errorf("keyfunc: %s %w", s, what), Detail: s.detail(what.Error())}
}

// named panics if name is empty.
func named(constructor, name string) {
	if name == "" {
		panic("keyfunc." + constructor + ": empty name")
	}
}
