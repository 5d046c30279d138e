package keyfunc_test

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

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
		"bare":                        {[]string{"abc"}, key("abc")},
		"string":                      {[]string{`"abc"`}, key("abc")},
		"blanks around":               {[]string{" \t\"abc\" "}, key("abc")},
		"UUID that starts with digit": {[]string{uuid}, key(uuid)},
		"the same in quotes":          {[]string{`"` + uuid + `"`}, key(uuid)},
		"number":                      {[]string{"42"}, key("42")},
		"base64":                      {[]string{"a+b/c=="}, key("a+b/c==")},
		"colons":                      {[]string{"order:42:pay"}, key("order:42:pay")},
		"escapes":                     {[]string{`"a\"b\\c"`}, key(`a"b\c`)},
		"structural in quotes":        {[]string{`"a b, (c); d"`}, key("a b, (c); d")},
		"longest":                     {[]string{longest}, key(longest)},
		"longest in quotes":           {[]string{`"` + longest + `"`}, key(longest)},
		"longest, every byte escaped": {[]string{`"` + strings.Repeat(`\"`, 255) + `"`}, key(strings.Repeat(`"`, 255))},
		"absent":                      {nil, missing("header Idempotency-Key is missing")},
		"empty":                       {[]string{""}, refused(400, "is empty")},
		"blank":                       {[]string{" \t "}, refused(400, "is empty")},
		"empty string":                {[]string{`""`}, refused(400, "is empty")},
		"256 bytes":                   {[]string{longest + "k"}, tooLong},
		"256 bytes in quotes":         {[]string{`"` + longest + `k"`}, tooLong},
		"1 MiB":                       {[]string{strings.Repeat("k", 1<<20)}, tooLong},
		"two lines":                   {[]string{secret, "abc"}, refused(400, "sent twice")},
		"two lines, equal":            {[]string{secret, secret}, refused(400, "sent twice")},
		"two lines, empty":            {[]string{"", secret}, refused(400, "sent twice")},
		"list":                        {[]string{secret + ", b"}, malformed},
		"list without blanks":         {[]string{secret + ",b"}, malformed},
		"list of strings":             {[]string{`"` + secret + `", "b"`}, malformed},
		"inner list":                  {[]string{"(" + secret + ")"}, malformed},
		"parameter":                   {[]string{secret + ";v=1"}, malformed},
		"parameter of a string":       {[]string{`"` + secret + `";v=1`}, malformed},
		"no end":                      {[]string{`"` + secret}, malformed},
		"quote inside":                {[]string{secret + `"b`}, malformed},
		"only a quote":                {[]string{`"`}, malformed},
		"escaped end":                 {[]string{`"` + secret + `\"`}, malformed},
		"backslash at the end":        {[]string{`"` + secret + `\`}, malformed},
		"another escape":              {[]string{`"` + secret + `\n"`}, malformed},
		"backslash in a bare key":     {[]string{secret + `\"`}, malformed},
		"blank inside":                {[]string{secret + " b"}, malformed},
		"control":                     {[]string{secret + "\x00"}, malformed},
		"tab in quotes":               {[]string{"\"" + secret + "\tb\""}, malformed},
		"delete":                      {[]string{secret + "\x7f"}, malformed},
		"unit separator in quotes":    {[]string{"\"\x1f" + secret + "\""}, malformed},
		"non-ASCII":                   {[]string{secret + "ë"}, malformed},
		"non-ASCII in quotes":         {[]string{`"` + secret + `ë"`}, malformed},
		"not UTF-8":                   {[]string{secret + "\xff"}, malformed},
		"string and more":             {[]string{`"` + secret + `"b`}, malformed},
		"display string of RFC 9651":  {[]string{`%"` + secret + `"`}, malformed},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c.want.check(t, keyfunc.IdempotencyKey, idempotencyRequest(c.lines))
		})
	}
}

func idempotencyRequest(lines []string) *http.Request {
	r := httptest.NewRequest(http.MethodPost, "/", nil)
	if lines != nil {
		r.Header["Idempotency-Key"] = lines
	}
	return r
}

// A malformed key is a mistake of the client, which must be reported to it: the
// request must not run unprotected.
func TestOptionalIdempotencyKey(t *testing.T) {
	t.Parallel()
	optional := keyfunc.Optional(keyfunc.IdempotencyKey)
	_, err := optional(idempotencyRequest(nil))
	require.ErrorIs(t, err, keyfunc.ErrSkip)
	for _, value := range []string{"", `""`, "a, b"} {
		_, err = optional(idempotencyRequest([]string{value}))
		require.Error(t, err)
		require.NotErrorIs(t, err, keyfunc.ErrSkip, "%q", value)
	}
}

// FuzzIdempotencyKey: an accepted key is short and printable, and equal to the
// same key sent as a string of RFC 8941.
func FuzzIdempotencyKey(f *testing.F) {
	for _, seed := range []string{"abc", `"abc"`, `"a\"b\\c"`, "8e03978e-40d5", "a;b=c", `"a", "b"`, `"\`, "\"\x00\"", " a "} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, value string) {
		got, err := keyfunc.IdempotencyKey(idempotencyRequest([]string{value}))
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
		again, err := keyfunc.IdempotencyKey(idempotencyRequest([]string{quoted}))
		require.NoError(t, err)
		require.Equal(t, got, again)
	})
}
