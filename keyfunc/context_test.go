package keyfunc_test

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/httplatch/httplatch/keyfunc"
)

type userKey struct{}

func userID(ctx context.Context) string {
	id, _ := ctx.Value(userKey{}).(string)
	return id
}

func as(user string) *http.Request {
	return get("/").WithContext(context.WithValue(context.Background(), userKey{}, user))
}

func TestContext(t *testing.T) {
	t.Parallel()
	f := keyfunc.Context(userID)
	key("42").check(t, f, as("42"))
	key(" a&b ").check(t, f, as(" a&b "))
	refused(400, "over 1024 bytes").check(t, f, as(secret+strings.Repeat("x", 1024)))
	refused(400, "control characters").check(t, f, as("\x1f"+secret))

	unauthenticated := outcome{status: http.StatusUnauthorized, missing: true, text: "mount the authentication outside this middleware"}
	unauthenticated.check(t, f, as(""))
	unauthenticated.check(t, f, get("/"))
	unauthenticated.check(t, keyfunc.Join(constant("x"), f), get("/"))

	_, err := keyfunc.Optional(f)(get("/"))
	require.ErrorIs(t, err, keyfunc.ErrSkip)
}

func TestError(t *testing.T) {
	t.Parallel()
	cause := errors.New("no such tenant")
	err := error(&keyfunc.Error{Status: http.StatusForbidden, Err: cause})
	require.ErrorIs(t, err, cause)
	require.EqualError(t, err, "no such tenant")
	require.NotErrorIs(t, err, keyfunc.ErrMissing)

	err = &keyfunc.Error{Status: http.StatusForbidden}
	require.EqualError(t, err, "keyfunc: Forbidden")
	require.NoError(t, errors.Unwrap(err))
}
