package keyfunc

import (
	"errors"
	"fmt"
	"net/http"

	"github.com/httplatch/httplatch/internal/bodybuf"
)

// maxBody bounds the bytes that JSON and Form read without a guard that has its own limit
// (WithBodyLimits).
const maxBody = 1 << 20

// body reads the whole body of r, which stays readable for the next reader, and decompresses it. The result is empty
// if earlier code has parsed the body as a form and not put it back. With an error that matches
// [bodybuf.ErrConsumed], it is the rest of the body.
func (s source) body(r *http.Request) ([]byte, error) {
	data, err := bodybuf.Content(r, maxBody)
	if err != nil {
		refusal := &Error{Status: http.StatusBadRequest, Err: fmt.Errorf("keyfunc: %s cannot be read: %w", s, err)}
		switch {
		case errors.Is(err, bodybuf.ErrTooLarge):
			refusal.Status, refusal.Detail = http.StatusRequestEntityTooLarge, s.detail("cannot be read: the request body is too large")
		case errors.Is(err, bodybuf.ErrMalformed):
			refusal.Detail = s.detail("cannot be read: the request body is not compressed as its Content-Encoding says")
		case errors.Is(err, bodybuf.ErrConsumed):
			refusal.Status = http.StatusInternalServerError
		}
		return data, refusal
	}
	return data, nil
}
