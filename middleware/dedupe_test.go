package middleware_test

import (
	"io"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/httplatch/httplatch/lock/memstore"
	latch "github.com/httplatch/httplatch/middleware"
)

// TestDedupeSwallowsAReturnToAnEarlierValue: a PUT that sets 1, 2 and 1 again within the
// window leaves 2, since the third is the first again. The pages say so.
func TestDedupeSwallowsAReturnToAnEarlierValue(t *testing.T) {
	t.Parallel()
	l := newLocker(t, memstore.New())
	var value string
	h := latch.Dedupe(l, byUser, time.Minute)(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		require.NoError(t, err)
		value = string(body)
	}))
	for _, set := range []string{"1", "2", "1"} {
		r := keyedBody("", set)
		r.Method = http.MethodPut
		require.Equal(t, http.StatusOK, serve(h, r).Code)
	}
	require.Equal(t, "2", value)
	for _, page := range []string{"../docs/forms.md", "idempotent.go"} {
		text, err := os.ReadFile(page)
		require.NoError(t, err)
		require.Contains(t, strings.ReplaceAll(string(text), "`", ""), "sets 1, then 2, then 1 again", page)
	}
}
