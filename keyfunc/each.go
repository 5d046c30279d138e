package keyfunc

import (
	"errors"
	"net/http"
	"slices"
)

// Set computes several keys of one request, for middleware.LockAll. Their order has no meaning. If
// it returns no keys, or an empty one, and no error, that counts as [ErrMissing]. Everything else
// is as for a [Func].
type Set func(*http.Request) ([]string, error)

// maxEach bounds the keys of one request.
const maxEach = 64

var errTooMany = errors.New("has over 64 different values; send fewer in one request")

// Each takes the different values at all places of a pattern out of a JSON body:
// Each("/items/*/sku") has the sku of each item. The pattern is a JSON pointer as for [JSON], in
// which "*" stands for each element of an array. Each value has to be one that JSON would accept,
// and the body has to be one, too.
//
// Up to 64 different values are allowed. More are refused with 400. An element without the value
// is [ErrMissing], because the work on it would run without a lock. An empty array is
// [ErrMissing], too.
//
// Each panics if pattern is empty or malformed, or has no "*".
func Each(pattern string) Set {
	tokens := parsePointer("Each", pattern)
	if !slices.ContainsFunc(tokens, pointerToken.isEach) {
		panic("keyfunc.Each: " + pattern + ` has no "*"; for one value use JSON`)
	}
	from := source("JSON value " + pattern)
	return func(r *http.Request) ([]string, error) {
		d, err := from.document(r, tokens)
		if err != nil {
			return nil, err
		}
		var values []string
		err = d.visit(d.space(0), tokens, from, func(value string) error {
			if slices.Contains(values, value) {
				return nil
			}
			if len(values) == maxEach {
				return from.refuse(errTooMany)
			}
			values = append(values, value)
			return nil
		})
		if err == nil && len(values) == 0 {
			err = from.missing(inBody)
		}
		if err != nil {
			return nil, err
		}
		return values, nil
	}
}

// isEach reports whether t stands for each element of an array.
func (t pointerToken) isEach() bool { return t.name == "*" }

// visit calls found with each value at tokens below the value at i.
func (d document) visit(i int, tokens []pointerToken, from source, found func(value string) error) error {
	for n, t := range tokens {
		if t.isEach() {
			return d.visitElements(i, tokens[n+1:], from, found)
		}
		var err error
		if i, err = d.step(i, t); err != nil {
			return from.refuse(err)
		}
		if i == absent {
			return from.missing(inBody)
		}
	}
	value, err := d.text(i)
	if err != nil {
		return from.refuse(err)
	}
	if value, err = from.check(value, inBody); err != nil {
		return err
	}
	return found(value)
}

func (d document) visitElements(i int, tokens []pointerToken, from source, found func(value string) error) error {
	if d[i] != '[' {
		return from.refuse(errNoWay)
	}
	for i = d.space(i + 1); d[i] != ']'; i = d.comma(d.end(i)) {
		if err := d.visit(i, tokens, from, found); err != nil {
			return err
		}
	}
	return nil
}
