package middleware

import (
	"fmt"
	"maps"
	"net/http"
	"slices"

	"github.com/httplatch/httplatch/middleware/internal/record"
)

// Answer is the final answer to a request, for [Finish], or an answer that is replayed, for [WithReplay].
type Answer struct {
	Status int         // 200 to 999
	Header http.Header // Content-Type, for example; without Set-Cookie and other headers that no record has
	Body   []byte
}

// record returns the record of a, the same bytes for equal answers.
func (a *Answer) record() ([]byte, error) {
	switch {
	case a.Status < http.StatusOK || a.Status > 999:
		return nil, fmt.Errorf("%d is no status of a final answer", a.Status)
	case len(a.Body) > 0 && !record.BodyAllowed(a.Status):
		return nil, fmt.Errorf("an answer of status %d has no body", a.Status)
	}
	header := make(http.Header, len(a.Header))
	for _, name := range slices.Sorted(maps.Keys(a.Header)) {
		canonical := http.CanonicalHeaderKey(name)
		if record.NeverKept(canonical) {
			return nil, fmt.Errorf("no answer is kept with the header %q", name)
		}
		header[canonical] = append(header[canonical], a.Header[name]...)
	}
	var headers []byte
	for _, name := range slices.Sorted(maps.Keys(header)) {
		headers = record.AppendHeader(headers, name, header[name])
	}
	return record.Close(append([]byte(record.Prefix), a.Body...), headers, a.Status, 0), nil
}
