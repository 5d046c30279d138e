package keyfunc_test

import (
	"crypto/sha256"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/httplatch/httplatch/internal/testkit/must"
	"github.com/httplatch/httplatch/internal/testkit/parallel"
	"github.com/httplatch/httplatch/keyfunc"
)

func TestHeader(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("x", 1024)
	for name, c := range map[string]struct {
		lines []string
		want  outcome
	}{
		"one":           {[]string{"42"}, key("42")},
		"blanks around": {[]string{" \t42 "}, key("42")},
		"separators":    {[]string{"a&b=c~d"}, key("a&b=c~d")},
		"not UTF-8":     {[]string{"Zo\xeb"}, key("Zo\xeb")},
		"longest":       {[]string{long}, key(long)},
		"absent":        {nil, missing(" is missing; let the gateway set it")},
		"empty":         {[]string{""}, missing("keyfunc: header ")},
		"twice":         {[]string{secret, "43"}, refused(400, "is sent twice; send it once")},
		"twice, empty":  {[]string{"", secret}, refused(400, "sent twice")},
		"too long":      {[]string{secret + long}, refused(400, "over 1024 bytes")},
		"tab inside":    {[]string{secret + "\tx"}, refused(400, "control characters")},
		"joined":        {[]string{"\x1f" + secret + "&7"}, refused(400, "control characters")},
		"line break":    {[]string{secret + "\r\nX: y"}, refused(400, "control characters")},
	} {
		parallel.Run(t, name, func(t *testing.T) {
			r := get("/")
			if c.lines != nil {
				r.Header["X-User-Id"] = c.lines
			}
			for _, spelling := range []string{"X-User-Id", "x-user-id", "X-USER-ID"} {
				c.want.check(t, keyfunc.Header(spelling), r)
			}
		})
	}
}

// TestSecretHeaders: no key, and so no store, console or log, has the credentials of a client.
func TestSecretHeaders(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"Authorization", "proxy-authorization", "COOKIE"} {
		f := keyfunc.Header(name)
		r := get("/")
		r.Header.Set(name, "Bearer "+secret)
		key(fmt.Sprintf("%x", sha256.Sum256([]byte("Bearer "+secret)))).check(t, f, r)
		for _, g := range []keyfunc.Func{f, keyfunc.Hash(f), keyfunc.Join(f, keyfunc.Global), keyfunc.Optional(f)} {
			one := must.Get(g(r))(t)
			require.NotContains(t, one, secret)
			r.Header.Set(name, "Bearer other")
			require.NotEqual(t, one, must.Get(g(r))(t))
			r.Header.Set(name, " Bearer "+secret)
			require.Equal(t, one, must.Get(g(r))(t))
		}
		r.Header.Add(name, secret)
		refused(400, "is sent twice").check(t, f, r)
		missing("is missing").check(t, f, get("/"))
	}
}
