package overload

import (
	"errors"

	"github.com/httplatch/httplatch/lock"
)

// denied has a file of its own: versions to compare with may not have this error.
func denied(err error) bool { return errors.Is(err, lock.ErrDenied) }
