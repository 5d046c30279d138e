package keyfunc_test

import (
	"crypto/sha256"
	"encoding/hex"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/httplatch/httplatch/keyfunc"
)

func TestHeader(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("x", 1024)
	for name, c := range map[string]struct {
		lines []string
		want  outcome
	}{
		"one":            {[]string{"42"}, key("42")},
		"blanks around":  {[]string{" \t42 "}, key("42")},
		"blanks inside":  {[]string{"Ann  Lee"}, key("Ann  Lee")},
		"separators":     {[]string{"a&b=c~d"}, key("a&b=c~d")},
		"case is kept":   {[]string{"Ann"}, key("Ann")},
		"non-ASCII":      {[]string{"Zoë"}, key("Zoë")},
		"not UTF-8":      {[]string{"Zo\xeb"}, key("Zo\xeb")},
		"list":           {[]string{"42, 43"}, key("42, 43")},
		"longest":        {[]string{long}, key(long)},
		"absent":         {nil, missing(" is missing; let the gateway set it")},
		"empty":          {[]string{""}, missing("keyfunc: header ")},
		"blank":          {[]string{" \t "}, missing("keyfunc: header ")},
		"twice":          {[]string{secret, "43"}, refused(400, "is sent twice; send it once")},
		"twice the same": {[]string{secret, secret}, refused(400, "sent twice")},
		"twice, empty":   {[]string{"", secret}, refused(400, "sent twice")},
		"too long":       {[]string{secret + long}, refused(400, "over 1024 bytes")},
		"tab inside":     {[]string{secret + "\tx"}, refused(400, "control characters")},
		"delete":         {[]string{secret + "\x7f"}, refused(400, "control characters")},
		"joined":         {[]string{"\x1f" + secret + "&7"}, refused(400, "control characters")},
		"NUL":            {[]string{secret + "\x00"}, refused(400, "control characters")},
		"line break":     {[]string{secret + "\r\nX: y"}, refused(400, "control characters")},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
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

func TestHeaderPanics(t *testing.T) {
	t.Parallel()
	for name, want := range map[string]string{
		"":           "keyfunc.Header: empty name",
		"X User":     "keyfunc.Header: X User cannot be the name of a header",
		"X-User:":    "keyfunc.Header: X-User: cannot be the name of a header",
		"X-Üser":     "keyfunc.Header: X-Üser cannot be the name of a header",
		"X-User\r\n": "keyfunc.Header: X-User\r\n cannot be the name of a header",
		"host":       "keyfunc.Header: Host is never among the headers; write a Func that reads Request.Host",
	} {
		require.PanicsWithValue(t, want, func() { keyfunc.Header(name) })
	}
	require.NotPanics(t, func() { keyfunc.Header("!#$%&'*+-.^_`|~09azAZ") })
}

// TestSecretHeaders: no key, and so no store, console or log, has the credentials of a client.
func TestSecretHeaders(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"Authorization", "proxy-authorization", "COOKIE"} {
		f := keyfunc.Header(name)
		r := get("/")
		r.Header.Set(name, "Bearer "+secret)
		sum := sha256.Sum256([]byte("Bearer " + secret))
		key(hex.EncodeToString(sum[:])).check(t, f, r)
		for _, g := range []keyfunc.Func{f, keyfunc.Hash(f), keyfunc.Join(f, keyfunc.Global), keyfunc.Optional(f)} {
			one, err := g(r)
			require.NoError(t, err)
			require.NotContains(t, one, secret)
			r.Header.Set(name, "Bearer other")
			other, err := g(r)
			require.NoError(t, err)
			require.NotEqual(t, one, other)
			r.Header.Set(name, " Bearer "+secret)
			again, err := g(r)
			require.NoError(t, err)
			require.Equal(t, one, again)
		}
		r.Header.Add(name, secret)
		refused(400, "is sent twice").check(t, f, r)
		missing("is missing").check(t, f, get("/"))
	}
}
