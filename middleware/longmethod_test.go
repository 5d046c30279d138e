package middleware_test

import (
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/httplatch/httplatch/lock/memstore"
)

// A client chooses the method, or the header that names another one, up to a megabyte. The record does not
// get longer by it, and two long methods are two requests.
func TestLongMethodIsNotKept(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("M", 64<<10)
	for name, set := range map[string]func(r *http.Request, method string){
		"method": func(r *http.Request, method string) { r.Method = method },
		"header": func(r *http.Request, method string) { r.Header.Set("X-Http-Method-Override", method) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			store := memstore.New()
			var e effects
			h := once(newLocker(t, store))(http.HandlerFunc(e.answer))
			for _, method := range []string{long + "A", long + "B", long + "A"} {
				r := keyed("k")
				set(r, method)
				require.Equal(t, http.StatusCreated, serve(h, r).Code)
			}
			e.require(t, 2)
			for entry, err := range store.List(t.Context()) {
				require.NoError(t, err)
				require.Less(t, len(entry.Owner), 1<<10)
			}
		})
	}
}
