package keyfunc

import (
	"errors"
	"fmt"
	"net/http"
)

// maxValue is how many bytes a value may have: as many as a lock takes.
const maxValue = 1024

// source says where a value comes from, for the texts of errors. It is made of
// what the program chose ("header X-User-ID"), never of what the client sent.
type source string

// check accepts value as a key or as a part of one.
func (s source) check(value, cure string) (string, error) {
	if value == "" {
		return "", s.missing(cure)
	}
	if len(value) > maxValue {
		return "", s.bad("is over 1024 bytes long; send less")
	}
	for i := range len(value) {
		// They have no business in an identifier, and the first byte of a joined
		// key is one of them.
		if c := value[i]; c < ' ' || c == 0x7f {
			return "", s.bad("has control characters; send it without")
		}
	}
	return value, nil
}

func (s source) missing(cure string) error {
	return &Error{Status: http.StatusBadRequest, Err: s.missingError(cure)}
}

func (s source) missingError(cure string) error {
	return &missingError{"keyfunc: " + string(s) + " is missing; " + cure}
}

func (s source) bad(what string) error {
	return s.refuse(http.StatusBadRequest, errors.New(what))
}

func (s source) refuse(status int, what error) error {
	return &Error{Status: status, Err: fmt.Errorf("keyfunc: %s %w", s, what)}
}

// named panics if name is empty.
func named(constructor, name string) {
	if name == "" {
		panic("keyfunc." + constructor + ": empty name")
	}
}
