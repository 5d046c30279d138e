package keyfunc_test

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/httplatch/httplatch/keyfunc"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// constant is the simplest Func that a user could write.
func constant(key string) keyfunc.Func {
	return func(*http.Request) (string, error) { return key, nil }
}

func failing(err error) keyfunc.Func { return func(*http.Request) (string, error) { return "", err } }

func get(target string) *http.Request { return httptest.NewRequest(http.MethodGet, target, nil) }

func post(contentType, body string) *http.Request {
	r := httptest.NewRequest(http.MethodPost, "/", strings.NewReader(body))
	r.Header.Set("Content-Type", contentType)
	return r
}

// secret is part of every value that tests expect to be refused for its content: no error may repeat it.
const secret = "s3cret"

// outcome is the expected result of a Func: key, or an error with status and, if missing,
// ErrMissing, whose text contains text.
type outcome struct {
	key     string
	status  int
	missing bool
	text    string
}

func key(k string) outcome                    { return outcome{key: k} }
func missing(text string) outcome             { return outcome{status: 400, missing: true, text: text} }
func refused(status int, text string) outcome { return outcome{status: status, text: text} }

func (o outcome) check(t *testing.T, f keyfunc.Func, r *http.Request) {
	t.Helper()
	got, err := f(r)
	if o.status == 0 {
		require.NoError(t, err)
		require.Equal(t, o.key, got)
		return
	}
	require.Empty(t, got)
	var refusal *keyfunc.Error
	require.ErrorAs(t, err, &refusal)
	require.Equal(t, o.status, refusal.Status, "%v", err)
	require.Equal(t, o.missing, errors.Is(err, keyfunc.ErrMissing), "%v", err)
	require.NotErrorIs(t, err, keyfunc.ErrSkip)
	require.ErrorContains(t, err, o.text)
	require.True(t, strings.HasPrefix(err.Error(), "keyfunc: "), "%v", err)
	require.NotContains(t, err.Error(), secret)
	require.NotContains(t, refusal.Detail, secret)
}
