package keyfunc

import (
	"errors"
	"fmt"
	"net/http"

	"github.com/httplatch/httplatch/internal/bodybuf"
)

// maxBody bounds what JSON and Form read.
const maxBody = 1 << 20

// body reads the whole body of r, which stays readable for whoever comes next.
func (s source) body(r *http.Request) ([]byte, error) {
	data, err := bodybuf.Bytes(r, maxBody)
	if err != nil {
		status := http.StatusBadRequest
		if errors.Is(err, bodybuf.ErrTooLarge) {
			status = http.StatusRequestEntityTooLarge
		}
		return nil, s.refuse(status, fmt.Errorf("cannot be read: %w", err))
	}
	return data, nil
}
