package keyfunc

import (
	"errors"
	"net/http"
)

// Optional lets requests without the key run unguarded: it returns [ErrSkip] where f
// returns [ErrMissing]. Other errors stay errors: a malformed value is refused, not let
// through.
//
// The client then chooses whether there is a key. So use Optional where the guard serves the
// client, as with an idempotency key. Inside a [Join], one missing part skips the whole key. As a
// scope, Optional lets anonymous requests run unguarded. It never gives them a common scope.
//
// Optional panics on a nil f.
func Optional(f Func) Func {
	if f == nil {
		panic("keyfunc.Optional: nil function")
	}
	return func(r *http.Request) (string, error) {
		key, err := f(r)
		if errors.Is(err, ErrMissing) || err == nil && key == "" {
			return "", ErrSkip
		}
		return key, err
	}
}
