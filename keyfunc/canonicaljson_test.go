package keyfunc_test

import (
	"encoding/json"
	"math/big"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/httplatch/httplatch/internal/testkit/must"
	"github.com/httplatch/httplatch/internal/testkit/parallel"
	"github.com/httplatch/httplatch/keyfunc"
)

// TestCanonicalJSON: docs/integrations compares texts and 100,000 numbers with a second
// implementation of RFC 8785. This test covers cases beyond the RFC.
func TestCanonicalJSON(t *testing.T) {
	t.Parallel()
	same := refused(400, "keyfunc: JSON body cannot be compared: it has an object with two members of one name")
	half := refused(400, "keyfunc: JSON body cannot be compared: it has half of a surrogate pair")
	invalid := refused(400, "keyfunc: JSON body cannot be read: the body is not exactly one JSON value in UTF-8")
	exponent := refused(400, "keyfunc: JSON body cannot be compared: it has a number with an exponent of more than 9 digits")
	for body, want := range map[string]outcome{
		` { "b" : [ 1.0 , null , true ] , "a" : "\u0061" } `: key(`{"a":"a","b":[1,null,true]}`),
		`{"b":{"d":1,"c":{"f":2,"e":3}},"a":4}`:              key(`{"a":4,"b":{"c":{"e":3,"f":2},"d":1}}`),
		`{"a":1,"A":2}`:                                      key(`{"A":2,"a":1}`),
		`"` + "\u2028" + `\u0000\u001f\u007f"`:               key(`"` + "\u2028" + `\u0000\u001f` + "\x7f" + `"`),
		`1e21`:                                               key("1e+21"),
		`-1E-7`:                                              key("-1e-7"),

		// All digits of a number that a float64 does not hold are kept.
		`9007199254740993`:          key("9007199254740993e0"),
		`-9007199254740993.0`:       key("-9007199254740993e0"),
		`90071992547409930`:         key("9007199254740993e1"),
		`1e400`:                     key("1e400"),
		`1e-400`:                    key("1e-400"),
		`0e999999999`:               key("0"),
		`1e-0000000000001`:          key("0.1"),
		`1e999999999`:               key("1e999999999"),
		`1e1000000000`:              exponent,
		`1e-9999999999999999999999`: exponent,

		`{"a":1,"a":1}`:                     same,
		`[{"b":{"x":1,"y":2,"x":3}}]`:       same,
		`{"` + "\u00e9" + `":1,"\u00E9":2}`: same,

		`"\ud800"`:         half,
		`"\ud800\u0041"`:   half,
		`"\udc00\ud800"`:   half,
		`"\\\ud800"`:       half,
		`"\ud800\\udc00"`:  half,
		`{"\ud800":1}`:     half,
		`"\\ud800"`:        key(`"\\ud800"`),
		`"\ud83d\ude00\\"`: key(`"😀\\"`),

		``:             missing("keyfunc: JSON body is missing"),
		`{"a":1}{}`:    invalid,
		` `:            invalid,
		"\ufeff{}":     invalid,
		"\"\xff\"":     invalid,
		nested(64):     key(nested(64)),
		nested(65):     refused(400, "over 64 levels"),
		nested(10_000): refused(400, "over 64 levels"),
		`{"a":"` + strings.Repeat("x", 1<<20) + `"}`: refused(413, "keyfunc: JSON body cannot be read: the request body is too large"),
	} {
		parallel.Run(t, body[:min(24, len(body))], func(t *testing.T) {
			r := post("application/json", body)
			want.check(t, keyfunc.CanonicalJSON, r)
			require.Equal(t, body, readAll(t, r.Body))
		})
	}
	refused(400, "the Content-Type is not that of JSON").check(t, keyfunc.CanonicalJSON, post("application/x-www-form-urlencoded", `{}`))
	key(`{}`).check(t, keyfunc.CanonicalJSON, post("application/vnd.orders+json", ` {}`))
}

// FuzzCanonicalJSON: the one spelling means the same as the body, and is its own.
func FuzzCanonicalJSON(f *testing.F) {
	for _, body := range []string{
		`{"b":[1.0,null],"a":"\u0061"}`, `{"a":1,"a":2}`, `"\ud83d\ude00"`, `9007199254740993`, `1e-400`, `-0`, `[[],{}]`,
		`{"` + "\ufb33" + `":1,"😀":2}`, `1.7976931348623157e308`, `0.000001`, nested(64),
	} {
		f.Add(body)
	}
	f.Fuzz(func(t *testing.T, body string) {
		text, err := keyfunc.CanonicalJSON(post("application/json", body))
		if err != nil {
			return
		}
		require.LessOrEqual(t, len(text), 6*len(body))
		require.Equal(t, text, must.Get(keyfunc.CanonicalJSON(post("application/json", text)))(t))
		if !immense.MatchString(body) && !immense.MatchString(text) {
			require.Equal(t, meaning(t, body), meaning(t, text))
		}
	})
}

// immense finds exponents whose numbers have too many digits for a fraction.
var immense = regexp.MustCompile(`[eE][-+]?[0-9]{5}`)

// meaning is a JSON text, decoded, with numbers as fractions.
func meaning(t *testing.T, text string) any {
	t.Helper()
	d := json.NewDecoder(strings.NewReader(text))
	d.UseNumber()
	var v any
	require.NoError(t, d.Decode(&v))
	return exactly(v)
}

func exactly(v any) any {
	switch v := v.(type) {
	case json.Number:
		number, _ := new(big.Rat).SetString(v.String())
		return number.RatString()
	case []any:
		for i := range v {
			v[i] = exactly(v[i])
		}
	case map[string]any:
		for name := range v {
			v[name] = exactly(v[name])
		}
	}
	return v
}
