package keyfunc_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/httplatch/httplatch/keyfunc"
)

func TestQuery(t *testing.T) {
	t.Parallel()
	for query, want := range map[string]outcome{
		"id=42":                            key("42"),
		"a=1&id=42&b=2":                    key("42"),
		"i%64=4%32":                        key("42"),
		"id=a+b":                           key("a b"),
		"id=a%26b":                         key("a&b"),
		"ID=1&id=42":                       key("42"),
		"":                                 missing("keyfunc: query parameter id is missing; send it in the URL"),
		"ID=42":                            missing("query parameter id"),
		"id":                               missing("query parameter id"),
		"id=":                              missing("query parameter id"),
		"id=" + secret + "&id=2":           refused(400, "keyfunc: query parameter id is sent twice; send it once"),
		"id=" + secret + "&%69d=" + secret: refused(400, "sent twice"),
		"id=&id=" + secret:                 refused(400, "sent twice"),
		"id=" + secret + ";x=1":            refused(400, "does not parse"),
		"id=42&x=" + secret + "%zz":        refused(400, "does not parse"),
		"id=42&x=" + secret + "%":          refused(400, "does not parse"),
		"id=" + secret + "%0A":             refused(400, "control characters"),
		"id=%1F" + secret + "%26b":         refused(400, "control characters"),
		"id=" + secret + strings.Repeat("x", 1024): refused(400, "over 1024 bytes"),
		"id=" + strings.Repeat("%78", 1024):        key(strings.Repeat("x", 1024)),
	} {
		t.Run(query[:min(20, len(query))], func(t *testing.T) {
			t.Parallel()
			r := get("/orders")
			r.URL.RawQuery = query
			want.check(t, keyfunc.Query("id"), r)
		})
	}
	require.PanicsWithValue(t, "keyfunc.Query: empty name", func() { keyfunc.Query("") })
}
