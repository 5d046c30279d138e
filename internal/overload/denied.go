package overload

import (
	"errors"

	"github.com/httplatch/httplatch/lock"
)

// denied has a separate file: versions to compare with may not have this error.
func denied(err error) bool { return errors.Is(err, lock.ErrDenied) }
