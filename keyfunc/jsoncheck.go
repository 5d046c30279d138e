package keyfunc

import (
	"bytes"
	"encoding/json"
	"slices"
	"unicode/utf8"
)

// checkJSON refuses a body that a handler may read differently, anywhere in it.
func checkJSON(data []byte) error {
	if !utf8.Valid(data) || !json.Valid(data) {
		return errNotJSON
	}
	c := checker{document: data, names: make([][]byte, 0, fewNames)}
	_, err := c.value(c.space(0), 0)
	return err
}

// checker checks the nesting of a document, and the names in it. json.Valid has already checked
// the grammar.
type checker struct {
	document
	names [][]byte // of the open objects, without case
}

// value visits the value at i, and returns its end.
func (c *checker) value(i, depth int) (int, error) {
	switch b := c.document[i]; {
	case (b == '{' || b == '[') && depth == maxDepth:
		return 0, errTooDeep
	case b == '{':
		return c.object(i, depth+1)
	case b == '[':
		return c.array(i, depth+1)
	}
	return c.end(i), nil
}

func (c *checker) object(i, depth int) (int, error) {
	outer := len(c.names)
	for i = c.space(i + 1); c.document[i] != '}'; i = c.comma(i) {
		end := c.stringEnd(i)
		c.names = append(c.names, foldCase(unquote(c.document[i:end])))
		var err error
		if i, err = c.value(c.space(c.space(end)+1), depth); err != nil {
			return 0, err
		}
	}
	if twins(c.names[outer:]) {
		return 0, errDuplicate
	}
	c.names = c.names[:outer]
	return i + 1, nil
}

func (c *checker) array(i, depth int) (int, error) {
	for i = c.space(i + 1); c.document[i] != ']'; i = c.comma(i) {
		var err error
		if i, err = c.value(i, depth); err != nil {
			return 0, err
		}
	}
	return i + 1, nil
}

// fewNames are compared faster in pairs than by sorting.
const fewNames = 12

// twins reports whether two of the names are equal. It may sort them.
func twins(names [][]byte) bool {
	if len(names) > fewNames {
		slices.SortFunc(names, bytes.Compare)
		for i := 1; i < len(names); i++ {
			if bytes.Equal(names[i-1], names[i]) {
				return true
			}
		}
		return false
	}
	for i := range names {
		for _, other := range names[:i] {
			if bytes.Equal(names[i], other) {
				return true
			}
		}
	}
	return false
}
