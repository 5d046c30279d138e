package identity_test

import (
	"net/url"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/httplatch/httplatch/internal/testkit/must"
	"github.com/httplatch/httplatch/middleware/internal/identity"
)

// TestPath: equal spellings are one path. A segment of escaped dots is a segment, as it is for routers.
func TestPath(t *testing.T) {
	t.Parallel()
	for want, spellings := range map[string][]string{
		"/":             {"/", "//", "/.", "/a/.."},
		"/orders":       {"/orders", "/orders/", "//orders", "/orders//", "/./orders", "/x/../orders", "/%6Frders/"},
		"/orders/7/pay": {"/orders/7/pay", "/orders/%37/pay", "/orders//7/pay/", "/orders/%37//pay/"},
		"/orders/a%2Fb": {"/orders/a%2Fb", "/orders/a%2fb/", "/orders//a%2fb"},
		"/orders/..":    {"/orders/%2e%2e", "/orders/%2E./"},
		"/a;b,c":        {"/a;b,c", "/a%3Bb%2Cc/", "/a;b%2c%63"},
	} {
		for _, s := range spellings {
			require.Equal(t, want, identity.Path(must.Get(url.ParseRequestURI(s))(t)), s)
		}
	}
	for _, stripped := range []string{"", "/"} { // by http.StripPrefix
		require.Equal(t, "/", identity.Path(&url.URL{Path: stripped}))
	}
	require.Equal(t, "/orders", identity.Path(&url.URL{Path: "orders"}))
	require.Equal(t, "/caf%C3%A9", identity.Path(&url.URL{Path: "/café/"}))
}

// TestCleanPathCostsNothing: most paths are clean.
func TestCleanPathCostsNothing(t *testing.T) { // not parallel: it measures
	u := &url.URL{Path: "/orders/7/pay"}
	require.Zero(t, testing.AllocsPerRun(100, func() { identity.Path(u) }))
}
