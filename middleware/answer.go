package middleware

import (
	"bytes"
	"fmt"
	"maps"
	"net/http"
	"reflect"
	"slices"

	"github.com/httplatch/httplatch/middleware/internal/record"
	"github.com/httplatch/httplatch/middleware/internal/recorder"
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
		if recorder.NeverKept(canonical) {
			return nil, fmt.Errorf("no answer is kept with the header %q", name)
		}
		header[canonical] = append(header[canonical], a.Header[name]...)
	}
	var headers []byte
	for _, name := range slices.Sorted(maps.Keys(header)) {
		headers = record.AppendHeader(headers, name, header[name])
	}
	return record.Close(append(record.Open(nil), a.Body...), headers, a.Status, false), nil
}

// adapted returns the record to send to r in place of receipt. f is the function of [WithReplay], nil if there is none. outside are the
// headers that outer middleware has set. An error of f is returned, and so is one for an answer of f that cannot be sent.
func adapted(f func(r *http.Request, a *Answer) error, outside http.Header, r *http.Request, receipt []byte) ([]byte, error) {
	if f == nil {
		return receipt, nil
	}
	rec, err := record.Read(receipt)
	if err != nil || rec.Tombstone {
		return receipt, nil //nolint:nilerr // Replay says what is wrong with it
	}
	answerOf := func() *Answer {
		a := &Answer{Status: rec.Status, Header: http.Header{}, Body: bytes.Clone(rec.Body)}
		rec.SetHeader(a.Header)
		sent := outside.Clone()
		rec.SetHeader(sent)
		for name := range a.Header {
			a.Header[name] = sent[name] // with the values of outer middleware to which the handler has added its own
		}
		return a
	}
	a := answerOf()
	if err := f(r, a); err != nil {
		return nil, err
	}
	if reflect.DeepEqual(a, answerOf()) { // as most are
		return receipt, nil
	}
	adapted, err := a.record()
	if err != nil {
		return nil, fmt.Errorf("middleware.WithReplay: %w", err)
	}
	return adapted, nil
}
