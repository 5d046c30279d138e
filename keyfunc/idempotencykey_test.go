package keyfunc_test

import (
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/httplatch/httplatch/internal/testkit/must"
	"github.com/httplatch/httplatch/keyfunc"
)

func TestIdempotencyKey(t *testing.T) {
	t.Parallel()
	const uuid = "8e03978e-40d5-43e8-bc93-6894a57f9324"
	longest := strings.Repeat("k", 255)
	malformed := refused(400, "neither one string of RFC 8941 nor one bare key")
	tooLong := refused(400, "over 255 bytes")
	for name, c := range map[string]struct {
		lines []string
		want  outcome
	}{
		"blanks around":               {[]string{" \t\"abc\" "}, key("abc")},
		"UUID that starts with digit": {[]string{uuid}, key(uuid)},
		"base64":                      {[]string{"a+b/c=="}, key("a+b/c==")},
		"structural in quotes":        {[]string{`"a b, (c); d"`}, key("a b, (c); d")},
		"longest in quotes":           {[]string{`"` + longest + `"`}, key(longest)},
		"longest, every byte escaped": {[]string{`"` + strings.Repeat(`\"`, 255) + `"`}, key(strings.Repeat(`"`, 255))},
		"empty":                       {[]string{""}, refused(400, "is empty")},
		"1 MiB":                       {[]string{strings.Repeat("k", 1<<20)}, tooLong},
		"two lines":                   {[]string{secret, "abc"}, refused(400, "sent twice")},
		"escaped end":                 {[]string{`"` + secret + `\"`}, malformed},
		"backslash at the end":        {[]string{`"` + secret + `\`}, malformed},
		"backslash in a bare key":     {[]string{secret + `\"`}, malformed},
		"control":                     {[]string{secret + "\x00"}, malformed},
		"tab in quotes":               {[]string{"\"" + secret + "\tb\""}, malformed},
		"delete":                      {[]string{secret + "\x7f"}, malformed},
		"unit separator in quotes":    {[]string{"\"\x1f" + secret + "\""}, malformed},
		"non-ASCII in quotes":         {[]string{`"` + secret + `ë"`}, malformed},
		"string and more":             {[]string{`"` + secret + `"b`}, malformed},
		"display string of RFC 9651":  {[]string{`%"` + secret + `"`}, malformed},
	} {
		t.Run(name, func(t *testing.T) { c.want.check(t, keyfunc.IdempotencyKey, idempotencyRequest(c.lines...)) })
	}
}

func idempotencyRequest(lines ...string) *http.Request {
	r := get("/")
	r.Header["Idempotency-Key"] = lines
	return r
}

// FuzzIdempotencyKey: an accepted key is short and printable, and equal to the same key sent as a string of RFC 8941.
func FuzzIdempotencyKey(f *testing.F) {
	for _, seed := range []string{"abc", `"abc"`, `"a\"b\\c"`, "8e03978e-40d5", "a;b=c", `"a", "b"`, `"\`, "\"\x00\"", " a "} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, value string) {
		got, err := keyfunc.IdempotencyKey(idempotencyRequest(value))
		if err != nil {
			require.Empty(t, got)
			return
		}
		require.NotEmpty(t, got)
		require.LessOrEqual(t, len(got), 255)
		for i := range len(got) {
			require.True(t, got[i] >= ' ' && got[i] < 0x7f)
		}
		quoted := `"` + strings.NewReplacer(`\`, `\\`, `"`, `\"`).Replace(got) + `"`
		require.Equal(t, got, must.Get(keyfunc.IdempotencyKey(idempotencyRequest(quoted)))(t))
	})
}
