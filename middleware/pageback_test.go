package middleware_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestWayBack: each page links to the page from which the form was sent, if both have one origin.
func TestWayBack(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		referer, site string
		want          string
	}{
		"page of the form":           {"http://example.com/new", "same-origin", "/new"},
		"with a query":               {"http://example.com/new?a=%22&b=<c>", "same-origin", "/new?a=%22&b=<c>"},
		"spelling":                   {"http://example.com/a%2Fb", "same-origin", "/a%2Fb"},
		"behind a proxy":             {"https://shop.example/new", "same-origin", "/new"},
		"behind a proxy, old":        {"https://shop.example/new", "", "/"},
		"old browser":                {"http://example.com/new", "", "/new"},
		"its origin only":            {"http://example.com/", "same-origin", "/"},
		"none":                       {"", "same-origin", "/"},
		"other site":                 {"https://evil.example/new", "cross-site", "/"},
		"other origin":               {"https://evil.example.com/new", "same-site", "/"},
		"a user's own request":       {"", "none", "/"},
		"a path that names a host":   {"http://example.com//evil.example/x", "same-origin", "/"},
		"the same by a backslash":    {`http://example.com/\evil.example`, "same-origin", "/%5Cevil.example"},
		"no path":                    {"http://example.com", "same-origin", "/"},
		"a script":                   {"javascript:alert(1)", "same-origin", "/"},
		"a script with a host":       {"javascript://example.com/%0Aalert(1)", "same-origin", "/"},
		"no URL":                     {"http://[", "same-origin", "/"},
		"opaque":                     {"http:new", "same-origin", "/"},
		"longer than a page repeats": {"http://example.com/" + strings.Repeat("a", 2<<10), "same-origin", "/"},
	}
	for name, tt := range tests {
		r := submission("once=k")
		for header, value := range map[string]string{"Referer": tt.referer, "Sec-Fetch-Site": tt.site} {
			if r.Header.Del(header); value != "" {
				r.Header.Set(header, value)
			}
		}
		page, ok := inProgressProblem().Page(r)
		require.True(t, ok, name)
		require.Equal(t, tt.want, page.BackTo, name)
		body := serve(page, r).Body.String()
		require.Equal(t, 1, strings.Count(body, "<a "), name)
		require.Contains(t, body, `<a href="`+strings.NewReplacer("&", "&amp;", "<", "&lt;", ">", "&gt;").Replace(tt.want)+`" referrerpolicy="same-origin">Go back</a>`, name)
		page.Back = `Zurück"><b>`
		require.Contains(t, serve(page, r).Body.String(), `>Zurück&#34;&gt;&lt;b&gt;</a>`, name)
		page.Back = ""
		require.NotContains(t, serve(page, r).Body.String(), "<a ", name)
	}
}
