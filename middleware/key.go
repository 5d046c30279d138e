package middleware

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"

	"github.com/httplatch/httplatch/internal/bodybuf"
	"github.com/httplatch/httplatch/keyfunc"
	"github.com/httplatch/httplatch/lock"
)

// keyOf is the lock's key for r. Its error is the key function's, or says what
// is wrong with what that returned, or with the body.
func (g *guard) keyOf(r *http.Request) (string, error) {
	if g.bodyFirst > 0 {
		bodybuf.Limit(r, g.bodyFirst)
	}
	value, err := g.key(r)
	if err != nil {
		return "", err
	}
	if value == "" {
		return "", keyfunc.ErrMissing
	}
	key := lock.Key(g.name, value)
	if len(key) > lock.MaxKeyBytes {
		return "", fmt.Errorf("middleware: key of %d bytes, at most %d are allowed; see keyfunc.Hash", len(key), lock.MaxKeyBytes)
	}
	if g.bodyFirst > 0 {
		if _, err := bodybuf.Bytes(r, g.bodyFirst); err != nil {
			return "", &bodyError{err}
		}
	}
	return key, nil
}

// keyProblem is the answer to a request whose key function failed with err.
func keyProblem(err error) *Problem {
	status := http.StatusBadRequest
	var own *keyfunc.Error
	if errors.As(err, &own) && own.Status >= 400 && own.Status <= 599 {
		status = own.Status
	}
	switch {
	case status == http.StatusUnauthorized:
		return unauthenticated.problem(status, 0, err)
	case status == http.StatusRequestEntityTooLarge:
		return bodyTooLarge.problem(status, 0, err)
	case status != http.StatusBadRequest:
		// The key function knows more about it than any text of ours.
		return &Problem{Status: status, Title: http.StatusText(status), Err: err}
	case errors.Is(err, keyfunc.ErrMissing):
		return keyMissing.problem(status, 0, err)
	default:
		return keyInvalid.problem(status, 0, err)
	}
}

// hintAtOrder tells the developer why a key may be missing. It is logged once
// per guard, because a client can leave out its key as often as it likes.
func hintAtOrder(ctx context.Context, name string) {
	slog.Default().LogAttrs(ctx, slog.LevelWarn,
		"httplatch: a request was refused because it has no key; if all are, the guard is mounted in the wrong place: "+
			"keyfunc.PathValue needs it on the route, not around the router; keyfunc.Context needs it inside the authentication",
		slog.String("name", name))
}
