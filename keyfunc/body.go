package keyfunc

import (
	"errors"
	"fmt"
	"net/http"

	"github.com/httplatch/httplatch/internal/bodybuf"
)

// maxBody bounds what JSON and Form read where no guard with its own limit
// (WithBodyLimits) stands before them.
const maxBody = 1 << 20

// body reads the whole body of r, which stays readable for the next reader. It
// is empty if something before has parsed it as a form and not put it back.
func (s source) body(r *http.Request) ([]byte, error) {
	data, err := bodybuf.Bytes(r, maxBody)
	if err != nil {
		status := http.StatusBadRequest
		switch {
		case errors.Is(err, bodybuf.ErrTooLarge):
			status = http.StatusRequestEntityTooLarge
		case errors.Is(err, bodybuf.ErrConsumed):
			status = http.StatusInternalServerError
		}
		return nil, s.refuse(status, fmt.Errorf("cannot be read: %w", err))
	}
	return data, nil
}
