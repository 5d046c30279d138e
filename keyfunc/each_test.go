package keyfunc_test

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/httplatch/httplatch/internal/testkit/must"
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
		{"/carts/*/1", `{"carts":[[1,2],[3,4]]}`, []string{"2", "4"}, ""},
		{"/items/*/sku", ``, nil, missing},
		{"/items/*/sku", `{}`, nil, missing},
		{"/items/*/sku", `{"items":[]}`, nil, missing},
		{"/items/*/sku", `{"items":[{"sku":1},{}]}`, nil, missing},
		{"/items/*/sku", `{"items":[{"sku":""}]}`, nil, missing},
		{"/items/*/sku", `{"items":{"sku":1}}`, nil, noWay},
		{"/items/*/sku", `{"items":[1]}`, nil, noWay},
		{"/items/*/sku", `{"items":null}`, nil, noWay},
		{"/items/*/sku", `{"items":[{"sku":[1]}]}`, nil, "neither a string nor an integer"},
		{"/items/*/sku", `{"items":[{"SKU":1}]}`, nil, "other capitals"},
		{"/items/*/sku", `{"items":[{"sku":1,"sku":2}]}`, nil, "two members of one name"},
		{"/items/*/sku", `{"items":[{"sku":1}],"x":{"a":1,"A":2}}`, nil, "two members of one name"},
		{"/items/*/sku", `{"items":[{"sku":"` + strings.Repeat("a", 1025) + `"}]}`, nil, "over 1024 bytes"},
		{"/items/*/sku", `{"items":[{"sku":1}]`, nil, "not exactly one JSON value"},
	} {
		r := post("application/json", tt.body)
		got, err := keyfunc.Each(tt.pattern)(r)
		require.Equal(t, tt.want, got, "%s of %s", tt.pattern, tt.body)
		require.Equal(t, tt.body, readAll(t, r.Body), "the handler gets it")
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
	each := func(different int) ([]string, error) {
		var all []int
		for i := range 3 * different {
			all = append(all, i%different)
		}
		return keyfunc.Each("/*")(post("application/json", string(must.Get(json.Marshal(all))(t))))
	}
	require.Len(t, must.Get(each(64))(t), 64)
	_, err := each(65)
	require.ErrorContains(t, err, "has over 64 different values")
	require.NotErrorIs(t, err, keyfunc.ErrMissing)
}
