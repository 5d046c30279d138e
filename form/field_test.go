package form_test

import (
	"net/http/httptest"
	"net/url"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/httplatch/httplatch/form"
	"github.com/httplatch/httplatch/keyfunc"
)

// TestField: it is one element, whose value is a key for the guard, and a new key each time.
func TestField(t *testing.T) {
	t.Parallel()
	element := regexp.MustCompile(`^<input type="hidden" name="once" value="([A-Z2-7]{26,})" autocomplete="off">$`)
	seen := map[string]bool{}
	for range 1000 {
		found := element.FindStringSubmatch(string(form.Field()))
		require.NotNil(t, found)
		require.False(t, seen[found[1]])
		seen[found[1]] = true

		r := httptest.NewRequest("POST", "/", strings.NewReader(url.Values{"once": {found[1]}}.Encode()))
		r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
		key, err := keyfunc.Form("once")(r)
		require.NoError(t, err)
		require.Equal(t, found[1], key)
	}
}

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }
