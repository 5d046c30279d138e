package keyfunc

import (
	"net/http"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/httplatch/httplatch/internal/bodybuf"
)

// JSON takes a string or an integer out of a JSON body: JSON("/order/id"). The pointer is
// an RFC 6901 one: "/items/0/sku" reaches into arrays, "~1" and "~0" stand for "/" and
// "~" in a name.
//
// The number 42 and the string "42" are one key. Integers may be of any size and keep
// every digit, so let the handler decode them into an integer, a string or a json.Number:
// as a float64, 9007199254740993 is ...992.
//
// A body that the handler could read differently is refused with 400:
//
//   - anything that is not exactly one JSON value in valid UTF-8: a byte order mark, bytes after
//     the value
//   - an object, anywhere, with two members of the same name, or of names that differ only
//     in case, which are the same to encoding/json
//   - a member on the path of the pointer that matches it only in another case
//   - null, a boolean, an object, an array, or a number with a fraction or an exponent in
//     place of the key
//   - a value on the path of the pointer that is neither an object nor, where the pointer has a
//     number, an array
//   - control characters, a key over 1 KiB, more than 64 levels of nesting
//   - a body that is declared as something else, such as a form or XML. There must be at most
//     one Content-Type: application/json, text/json, a type that ends with +json and does not
//     begin like a form or XML, or a type that does not describe the body (text/plain,
//     application/octet-stream, or none)
//   - a parameter in the query with the name of a member of the pointer (in any case, with or
//     without "_" and "-"), if the method is GET or the type is not application/json: gin's
//     ShouldBind would read the query
//
// A body over the limit of the guard, or over 1 MiB under a guard without a limit, is refused
// with 413. A body that code before the guard has read, or a part of it, and not put back is
// refused with 500. A missing body, an absent member or element, and an empty string are
// [ErrMissing]. The handler gets the body as the client sent it.
//
// JSON panics if pointer is empty or malformed.
func JSON(pointer string) Func {
	tokens := parsePointer("JSON", pointer)
	from := source("JSON value " + pointer)
	return func(r *http.Request) (string, error) {
		d, err := from.document(r, tokens)
		if err != nil {
			return "", err
		}
		found, err := d.find(tokens)
		if err != nil {
			return "", from.refuse(err)
		}
		return from.check(found, inBody)
	}
}

// inBody is the cure for a value that is missing in the body.
const inBody = "send it in the body"

// document reads the body of r, and refuses it unless it is JSON.
func (s source) document(r *http.Request, tokens []pointerToken) (document, error) {
	data, err := s.body(r)
	if err != nil {
		return nil, err
	}
	if len(data) == 0 && !bodybuf.FormParsed(r) { // a parsed form is no JSON
		return nil, s.missing(inBody)
	}
	if err := s.declaredAsJSON(r, tokens); err != nil {
		return nil, err
	}
	if err := bodybuf.Verdict(r, data, checkJSON); err != nil {
		return nil, s.refuse(err)
	}
	return data, nil
}

// pointerToken is one step of a JSON pointer.
type pointerToken struct {
	name   string // of a member
	folded string // the name without its case
	index  int    // of an element; -1 if the name is not an index
}

func parsePointer(constructor, pointer string) []pointerToken {
	named(constructor, pointer)
	if pointer[0] != '/' {
		panic("keyfunc." + constructor + ": " + pointer + " does not start with a slash; write /" + pointer)
	}
	if !utf8.ValidString(pointer) {
		panic("keyfunc." + constructor + ": the pointer is not valid UTF-8")
	}
	var tokens []pointerToken
	for text := range strings.SplitSeq(pointer[1:], "/") {
		if strings.Count(text, "~") != strings.Count(text, "~0")+strings.Count(text, "~1") {
			panic("keyfunc." + constructor + ": in " + pointer + ` a "~" is followed by neither 0 nor 1; write "~0" for it`)
		}
		// In this order: "~01" is the name "~1".
		name := strings.ReplaceAll(strings.ReplaceAll(text, "~1", "/"), "~0", "~")
		tokens = append(tokens, pointerToken{name, string(foldCase([]byte(name))), arrayIndex(name)})
	}
	return tokens
}

// arrayIndex reads a decimal number without sign and leading zeros.
func arrayIndex(token string) int {
	index, err := strconv.ParseUint(token, 10, 31)
	if err != nil || len(token) > 1 && token[0] == '0' {
		return -1
	}
	return int(index)
}
