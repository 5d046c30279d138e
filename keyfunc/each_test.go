package keyfunc_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/httplatch/httplatch/keyfunc"
)

func TestEach(t *testing.T) {
	t.Parallel()
	const (
		missing = "is missing; send it in the body"
		noWay   = "cannot be reached"
	)
	for _, tt := range []struct {
		pattern, body string
		want          []string
		refusal       string
	}{
		{"/items/*/sku", `{"items":[{"sku":"b"},{"sku":"a"}]}`, []string{"b", "a"}, ""},
		{"/items/*/sku", `{"items":[{"sku":"a"},{"sku":"a","n":2},{"sku":"\u0061"}]}`, []string{"a"}, ""},
		{"/items/*/sku", `{"items":[{"sku":7},{"sku":"7"},{"sku":-0}]}`, []string{"7", "0"}, ""},
		{"/items/*/sku", " {\"items\" : [ { \"sku\" : 7 } , {\"sku\":8}] } ", []string{"7", "8"}, ""},
		{"/*", `["a","b"]`, []string{"a", "b"}, ""},
		{"/*/ids/*", `[{"ids":[1,2]},{"ids":[]},{"ids":[3]}]`, []string{"1", "2", "3"}, ""},
		{"/carts/0/*", `{"carts":[[1],[2]]}`, []string{"1"}, ""},
		{"/carts/*/1", `{"carts":[[1,2],[3,4]]}`, []string{"2", "4"}, ""},

		{"/items/*/sku", ``, nil, missing},
		{"/items/*/sku", `{}`, nil, missing},
		{"/items/*/sku", `{"items":[]}`, nil, missing},
		{"/items/*/sku", `{"items":[{"sku":1},{}]}`, nil, missing},
		{"/items/*/sku", `{"items":[{"sku":""}]}`, nil, missing},
		{"/items/*/sku", `{"items":{"sku":1}}`, nil, noWay},
		{"/items/*/sku", `{"items":[1]}`, nil, noWay},
		{"/items/*/sku", `{"items":null}`, nil, noWay},
		{"/items/*/sku", `{"Items":[]}`, nil, "other capitals"},
		{"/items/*/sku", `{"items":[{"SKU":1}]}`, nil, "other capitals"},
		{"/items/*/sku", `{"items":[{"sku":1,"sku":2}]}`, nil, "two members of one name"},
		{"/items/*/sku", `{"items":[{"sku":1}],"x":{"a":1,"A":2}}`, nil, "two members of one name"},
		{"/items/*/sku", `{"items":[{"sku":1.5}]}`, nil, "a fraction or an exponent"},
		{"/items/*/sku", `{"items":[{"sku":[1]}]}`, nil, "neither a string nor an integer"},
		{"/items/*/sku", `{"items":[{"sku":"\u0000"}]}`, nil, "control characters"},
		{"/items/*/sku", `{"items":[{"sku":"` + strings.Repeat("a", 1025) + `"}]}`, nil, "over 1024 bytes"},
		{"/items/*/sku", `{"items":[{"sku":1}]`, nil, "not exactly one JSON value"},
	} {
		r := httptest.NewRequest(http.MethodPost, "/", strings.NewReader(tt.body))
		r.Header.Set("Content-Type", "application/json")
		got, err := keyfunc.Each(tt.pattern)(r)
		require.Equal(t, tt.want, got, "%s of %s", tt.pattern, tt.body)
		if tt.refusal == "" {
			require.NoError(t, err)
			continue
		}
		require.ErrorContains(t, err, tt.refusal, tt.body)
		var refused *keyfunc.Error
		require.ErrorAs(t, err, &refused)
		require.Equal(t, http.StatusBadRequest, refused.Status)
		if tt.refusal == missing {
			require.ErrorIs(t, err, keyfunc.ErrMissing)
		}
	}
}

func TestEachIsBounded(t *testing.T) {
	t.Parallel()
	body := func(different, times int) string {
		var b strings.Builder
		b.WriteString("[0")
		for range times {
			for i := range different {
				fmt.Fprintf(&b, ",%d", i)
			}
		}
		return b.String() + "]"
	}
	each := keyfunc.Each("/*")
	got, err := each(httptest.NewRequest(http.MethodPost, "/", strings.NewReader(body(64, 3))))
	require.NoError(t, err)
	require.Len(t, got, 64)
	_, err = each(httptest.NewRequest(http.MethodPost, "/", strings.NewReader(body(65, 1))))
	require.ErrorContains(t, err, "has over 64 different values")
	require.NotErrorIs(t, err, keyfunc.ErrMissing)
}

// The handler finds the body as it was sent, and another key function reads the same body.
func TestEachPutsTheBodyBack(t *testing.T) {
	t.Parallel()
	const body = `{"user":"42","items":[{"sku":"a"}]}`
	r := httptest.NewRequest(http.MethodPost, "/", strings.NewReader(body))
	_, err := keyfunc.Each("/items/*/sku")(r)
	require.NoError(t, err)
	user, err := keyfunc.JSON("/user")(r)
	require.NoError(t, err)
	require.Equal(t, "42", user)
	left := make([]byte, len(body)+1)
	n, _ := r.Body.Read(left)
	require.Equal(t, body, string(left[:n]))
}

func TestEachMisusePanics(t *testing.T) {
	t.Parallel()
	for pattern, want := range map[string]string{
		"":           "keyfunc.Each: empty name",
		"items/*":    "keyfunc.Each: items/* does not start with a slash; write /items/*",
		"/items/sku": `keyfunc.Each: /items/sku has no "*"; for one value use JSON`,
		"/a~2/*":     `keyfunc.Each: in /a~2/* a "~" is followed by neither 0 nor 1; write "~0" for it`,
	} {
		require.PanicsWithValue(t, want, func() { keyfunc.Each(pattern) })
	}
}
