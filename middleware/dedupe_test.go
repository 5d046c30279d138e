package middleware_test

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/httplatch/httplatch/lock"
	"github.com/httplatch/httplatch/lock/memstore"
	latch "github.com/httplatch/httplatch/middleware"
)

// TestDedupe: no key at all, 50 clicks, one order, 50 equal answers, until the
// window is over.
func TestDedupe(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		l := lock.New(memstore.New(), lock.WithWait(10*time.Second))
		t.Cleanup(func() { end(l) })
		var e effects
		h := latch.Dedupe(l, byUser, 3*time.Second)(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			time.Sleep(time.Second)
			e.answer(w, r)
		}))
		for _, w := range storm(50, func(int) *httptest.ResponseRecorder { return serve(h, keyed("")) }) {
			require.Equal(t, 201, w.Code)
			require.Equal(t, "order 1", w.Body.String())
		}
		e.require(t, 1)

		other := keyed("")
		other.Header.Set("X-User-ID", "43")
		require.Equal(t, "order 2", serve(h, other).Body.String(), "another user")
		require.Equal(t, "order 3", serve(h, keyedBody("", `{"sku":"y"}`)).Body.String(), "another order")
		time.Sleep(990 * time.Millisecond)
		require.Equal(t, "order 1", serve(h, keyed("")).Body.String())
		time.Sleep(20 * time.Millisecond)
		require.Equal(t, "order 4", serve(h, keyed("")).Body.String(), "the window is over")
	})
}

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

// TestDedupeByChosenParts: what a WithFingerprint function returns is the key.
func TestDedupeByChosenParts(t *testing.T) {
	t.Parallel()
	l := newLocker(t, memstore.New())
	var e effects
	h := latch.Dedupe(l, byUser, time.Hour, latch.WithFingerprint(func(r *http.Request) (string, error) {
		return r.Header.Get("X-Part"), nil
	}))(http.HandlerFunc(e.answer))
	for i, part := range []string{"a", "b", "a", "b"} {
		r := keyedBody("", fmt.Sprint("body ", i))
		r.Header.Set("X-Part", part)
		require.Equal(t, "order "+itoa(int64(i%2+1)), serve(h, r).Body.String())
	}
	e.require(t, 2)
}
