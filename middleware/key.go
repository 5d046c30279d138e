package middleware

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"

	"github.com/httplatch/httplatch/internal/bodybuf"
	"github.com/httplatch/httplatch/internal/keytext"
	"github.com/httplatch/httplatch/keyfunc"
	"github.com/httplatch/httplatch/lock"
)

// call turns an empty key into [keyfunc.ErrMissing].
func call(f keyfunc.Func, r *http.Request) (string, error) {
	key, err := f(r)
	if err == nil && key == "" {
		err = keyfunc.ErrMissing
	}
	return key, err
}

// keyOf is the lock's key for r. Its error is the key function's, or says what
// is wrong with what that returned, or with the body.
func (g *guard) keyOf(r *http.Request) (string, error) {
	if g.bodyFirst > 0 {
		bodybuf.Limit(r, g.bodyFirst)
	}
	value, err := call(g.key, r)
	if err != nil {
		return "", err
	}
	key := lock.Key(g.name, value)
	if len(key) > keytext.MaxBytes {
		return "", &keyfunc.Error{
			Status: http.StatusBadRequest,
			Err:    fmt.Errorf("middleware: key of %d bytes, at most %d are allowed; see keyfunc.Hash", len(key), keytext.MaxBytes),
			Detail: "The value is too long.",
		}
	}
	if g.bodyFirst > 0 {
		// One that was read outside is no slow body, whatever the key is made of.
		if _, err := bodybuf.Bytes(r, g.bodyFirst); err != nil && !errors.Is(err, bodybuf.ErrConsumed) {
			return "", &bodyError{err}
		}
	}
	return key, nil
}

// keyProblem is the answer to a request whose key, scope or fingerprint function
// failed with err. One that neither says that the key is missing nor is a
// [keyfunc.Error] is a failure of the server.
func keyProblem(err error) *Problem {
	own, ok := errors.AsType[*keyfunc.Error](err)
	switch {
	case errors.Is(err, bodybuf.ErrConsumed):
		return ProblemBodyConsumed.problem(http.StatusInternalServerError, 0, err)
	case !ok && !errors.Is(err, keyfunc.ErrMissing):
		return ProblemKeyFailed.problem(http.StatusInternalServerError, 0, err)
	}
	p := refusedKey(own, err)
	if own != nil {
		p.Header, p.Detail = own.Header.Clone(), own.Detail
	}
	return p
}

func refusedKey(own *keyfunc.Error, err error) *Problem {
	status := http.StatusBadRequest
	if own != nil && own.Status >= 400 && own.Status <= 599 {
		status = own.Status
	}
	switch {
	case status == http.StatusUnauthorized:
		return ProblemUnauthenticated.problem(status, 0, err)
	case status == http.StatusRequestEntityTooLarge:
		return ProblemBodyTooLarge.problem(status, 0, err)
	case status != http.StatusBadRequest:
		// The key function knows more about it than our own text.
		return &Problem{Status: status, Title: http.StatusText(status), Err: err}
	case errors.Is(err, keyfunc.ErrMissing):
		return ProblemKeyMissing.problem(status, 0, err)
	default:
		return ProblemKeyInvalid.problem(status, 0, err)
	}
}

// hintAtMissing tells the developer why a key may be missing: the error of a key function
// says what is, and the cure. It is logged once per guard, because a client can leave out
// its key as often as it likes.
func (g *guardLog) hintAtMissing(ctx context.Context, err error) {
	g.log(ctx, slog.LevelWarn,
		"a request was refused because it has no key; if all are, the error says where the key was expected",
		slog.Any("error", err))
}

// hintAtConsumed logs, once per guard, that it is mounted in the wrong place.
func (g *guardLog) hintAtConsumed(ctx context.Context, err error) {
	g.log(ctx, slog.LevelError,
		"a request was refused because its body, which says what it is, was read before the guard; "+
			"mount the guard outside of what reads the body, or put the body back there "+
			"(r.Body = io.NopCloser(bytes.NewReader(body))), or name what to compare instead (WithFingerprint)",
		slog.Any("error", err))
}
