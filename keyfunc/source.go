package keyfunc

import (
	"errors"
	"fmt"
	"net/http"
	"strings"
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
	return &Error{Status: http.StatusBadRequest, Err: s.missingError(cure), Detail: s.detail("is missing")}
}

func (s source) missingError(cure string) error {
	return &missingError{"keyfunc: " + string(s) + " is missing; " + cure}
}

// bad refuses a value because of what, which ends with "; " and the cure.
func (s source) bad(what string) error {
	return s.refuse(errors.New(what))
}

// detail is for the client, which can do something about what it sends itself.
func (s source) detail(what string) string {
	what, _, _ = strings.Cut(what, "; ")
	return "The " + string(s) + " " + what + "."
}

// refuse is bad for an error of this package.
func (s source) refuse(what error) error {
	return &Error{Status: http.StatusBadRequest, Err: fmt.Errorf("keyfunc: %s %w", s, what), Detail: s.detail(what.Error())}
}

// named panics if name is empty.
func named(constructor, name string) {
	if name == "" {
		panic("keyfunc." + constructor + ": empty name")
	}
}
