package integrations_test

import (
	"encoding/json"
	"math"
	"math/big"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"testing"

	"github.com/gowebpki/jcs"
	"github.com/stretchr/testify/require"

	"github.com/httplatch/httplatch/keyfunc"
)

func canonical(body string) (string, error) {
	return keyfunc.CanonicalJSON(httptest.NewRequest(http.MethodPost, "/", strings.NewReader(body)))
}

// reference is a second implementation of RFC 8785.
func reference(body string) (string, error) {
	text, err := jcs.Transform([]byte(body))
	return string(text), err
}

// pair is two JSON texts, and whether RFC 8785 finds them equal.
type pair struct {
	a, b  string
	equal bool
}

// pairs are 100 pairs of bodies that clients send, and that attackers would.
var pairs = []pair{
	// White space.
	{`{}`, ` { } `, true},
	{`[]`, "[\n]", true},
	{`{"a":1}`, "{\t\"a\" :\r\n1 }", true},
	{`[1,2]`, `[1 , 2]`, true},
	{`"a b"`, `"a  b"`, false},
	{`null`, ` null`, true},
	{`true`, "true\n", true},
	{`{"a":{"b":[1,{"c":2}]}}`, `{ "a" : { "b" : [ 1 , { "c" : 2 } ] } }`, true},
	// The order of names, and of nothing else.
	{`{"a":1,"b":2}`, `{"b":2,"a":1}`, true},
	{`{"a":1,"b":2}`, `{"b":1,"a":2}`, false},
	{`{"a":{"x":1,"y":2},"b":3}`, `{"b":3,"a":{"y":2,"x":1}}`, true},
	{`[1,2]`, `[2,1]`, false},
	{`[{"a":1},{"b":2}]`, `[{"b":2},{"a":1}]`, false},
	{`[{"a":1,"b":2}]`, `[{"b":2,"a":1}]`, true},
	{`{"":1,"a":2}`, `{"a":2,"":1}`, true},
	{`{"1":1,"10":2,"2":3}`, `{"10":2,"2":3,"1":1}`, true},
	{`{"a":1,"A":2}`, `{"A":2,"a":1}`, true},
	{`{"a":1,"A":2}`, `{"A":1,"a":2}`, false},
	{`{"é":1,"z":2}`, `{"z":2,"é":1}`, true},
	{`{"€":1,"\r":2,"דּ":3,"1":4,"😀":5,"\u0080":6,"ö":7}`, `{"ö":7,"😀":5,"1":4,"\u0080":6,"\r":2,"דּ":3,"€":1}`, true},
	{`{"\ud83d\ude00":1,"\ufb33":2}`, "{\"\ufb33\":2,\"\U0001f600\":1}", true},
	{`{"\ue000":1,"\ud800\udc00":2}`, "{\"\U00010000\":2,\"\ue000\":1}", true},
	{`{"a":1,"aa":2,"aaa":3}`, `{"aaa":3,"aa":2,"a":1}`, true},
	{`{"a\u0000":1,"a":2}`, `{"a":2,"a\u0000":1}`, true},
	// Null, absent, and the empty values.
	{`{"a":null}`, `{}`, false},
	{`{"a":null}`, `{"a":""}`, false},
	{`{"a":null}`, `{"a":0}`, false},
	{`{"a":null}`, `{"a":false}`, false},
	{`{"a":null}`, `{"a":"null"}`, false},
	{`{"a":[]}`, `{"a":{}}`, false},
	{`{"a":[]}`, `{"a":[null]}`, false},
	{`{"a":{}}`, `{"a":null}`, false},
	{`[null]`, `[null,null]`, false},
	{`{"a":1}`, `{"a":1,"b":null}`, false},
	{`""`, `" "`, false},
	// Types.
	{`{"a":1}`, `{"a":"1"}`, false},
	{`{"a":true}`, `{"a":"true"}`, false},
	{`{"a":true}`, `{"a":1}`, false},
	{`{"a":[1]}`, `{"a":1}`, false},
	{`{"a":{"b":1}}`, `{"a.b":1}`, false},
	{`true`, `false`, false},
	// The spelling of numbers.
	{`1`, `1.0`, true},
	{`1`, `1e0`, true},
	{`1`, `10e-1`, true},
	{`1`, `0.1e1`, true},
	{`1`, `1.000000000000000000000000`, true},
	{`100`, `1e2`, true},
	{`100`, `1E+2`, true},
	{`100`, `1.00e02`, true},
	{`0`, `-0`, true},
	{`0`, `0.0`, true},
	{`0`, `-0e5`, true},
	{`0`, `0e-99999`, true},
	{`-1`, `-1.0`, true},
	{`-1`, `1`, false},
	{`1.5`, `15e-1`, true},
	{`19.99`, `19.990`, true},
	{`19.99`, `1999e-2`, true},
	{`19.99`, `19.9`, false},
	{`0.1`, `0.10000000000000000`, true},
	{`0.1`, `1e-1`, true},
	{`0.1`, `0.2`, false},
	{`0.30000000000000004`, `0.3`, false},
	{`0.000001`, `1e-6`, true},
	{`0.0000001`, `1e-7`, true},
	{`1e-7`, `1e-07`, true},
	{`1e20`, `100000000000000000000`, true},
	{`1e21`, `1000000000000000000000`, true},
	{`1e21`, `1e+21`, true},
	{`123456789012345690000000`, `1.2345678901234569e23`, true},
	{`1e100`, `10e99`, true},
	{`1e100`, `1e101`, false},
	{`1.7976931348623157e308`, `17976931348623157e292`, true},
	{`5e-324`, `0.5e-323`, true},
	{`2.2250738585072014e-308`, `22250738585072014e-324`, true},
	{`9007199254740991`, `9007199254740991.0`, true},
	{`9007199254740991`, `9007199254740992`, false},
	{`9007199254740992`, `9.007199254740992e15`, true},
	{`999999999999999900000`, `9999999999999999e5`, true},
	{`333333333.3333333`, `3333333333333333e-7`, true},
	{`4.50`, `4.5`, true},
	{`2e-3`, `0.002`, true},
	{`1`, `1.0000000000000002`, false},
	// Escapes in strings.
	{`"a"`, `"\u0061"`, true},
	{`"/"`, `"\/"`, true},
	{`"é"`, `"\u00e9"`, true},
	{`"é"`, `"\u00E9"`, true},
	{"\"\u00e9\"", "\"e\u0301\"", false},
	{`"😀"`, `"\ud83d\ude00"`, true},
	{`"\n"`, `"\u000a"`, true},
	{`"\u0007"`, `"\u0007"`, true},
	{`"\b\t\f\r"`, `"\u0008\u0009\u000c\u000d"`, true},
	{`"\""`, `"\u0022"`, true},
	{`"\\"`, `"\u005c"`, true},
	{`"\\n"`, `"\n"`, false},
	{`"\\u0061"`, `"a"`, false},
	{`"<script>&"`, `"\u003cscript\u003e\u0026"`, true},
	{`"\u2028\u2029"`, "\"\u2028\u2029\"", true},
	{`"\u007f"`, "\"\u007f\"", true},
	{`{"\u0061":1}`, `{"a":1}`, true},
	{`{"a\/b":1}`, `{"a/b":1}`, true},
	{`"a"`, `"A"`, false},
}

// TestCanonicalPairs: both implementations write the same bytes, and find the same pairs equal.
func TestCanonicalPairs(t *testing.T) {
	t.Parallel()
	require.GreaterOrEqual(t, len(pairs), 100)
	for _, p := range pairs {
		var ours, theirs [2]string
		for i, text := range []string{p.a, p.b} {
			var err error
			ours[i], err = canonical(text)
			require.NoError(t, err, text)
			theirs[i], err = reference(text)
			require.NoError(t, err, text)
			require.Equal(t, theirs[i], ours[i], text)
		}
		require.Equal(t, p.equal, ours[0] == ours[1], "%s and %s", p.a, p.b)
	}
}

// TestCanonicalRefusals: what RFC 8785 demands to be refused. Our own limits are tested in
// package keyfunc.
func TestCanonicalRefusals(t *testing.T) {
	t.Parallel()
	for _, text := range []string{
		`{"a":1,"a":1}`, `{"a":1,"\u0061":2}`, `{"b":{"a":1,"a":2}}`,
		`"\ud800"`, `"\udc00"`, `"\ud800\ud800"`, `"\ud800a"`, `{"\ud800":1}`,
		`{`, `[1,]`, `{"a":1,}`, `01`, `1.`, `+1`, `.5`, `1e`, `"a`, `nul`, ``, `1 2`, `{"a" 1}`,
	} {
		_, ours := canonical(text)
		require.Error(t, ours, text)
		_, theirs := reference(text)
		require.Error(t, theirs, text)
	}
}

// TestCanonicalDeviation: numbers that a float64 does not hold are rounded by RFC 8785, and keep
// all their digits here: a different order is never taken for the first one.
func TestCanonicalDeviation(t *testing.T) {
	t.Parallel()
	for _, p := range []pair{
		{`9007199254740993`, `9007199254740992`, true},
		{`1234567890123456789`, `1234567890123456788`, true},
		{`0.1000000000000000055511151231257827`, `0.1`, true},
	} {
		a, err := reference(p.a)
		require.NoError(t, err)
		b, err := reference(p.b)
		require.NoError(t, err)
		require.Equal(t, p.equal, a == b)
		a, err = canonical(p.a)
		require.NoError(t, err)
		b, err = canonical(p.b)
		require.NoError(t, err)
		require.NotEqual(t, a, b)
		require.True(t, json.Valid([]byte(a)))
	}
	_, err := reference(`1e400`)
	require.Error(t, err)
	_, err = canonical(`1e400`)
	require.NoError(t, err)
}

// TestCanonicalNumbers compares the spelling of 100,000 float64, from all orders of magnitude.
func TestCanonicalNumbers(t *testing.T) {
	t.Parallel()
	random := rand.New(rand.NewPCG(8785, 0))
	for range 100 {
		var numbers []string
		for len(numbers) < 1000 {
			f := math.Float64frombits(random.Uint64())
			if random.IntN(2) == 0 {
				f = math.Round(random.Float64()*1e9) / 100 // prices
			}
			if !math.IsNaN(f) && !math.IsInf(f, 0) {
				numbers = append(numbers, strconv.FormatFloat(f, "efg"[random.IntN(3)], -1, 64))
			}
		}
		text := "[" + strings.Join(numbers, " , ") + "]"
		ours, err := canonical(text)
		require.NoError(t, err)
		theirs, err := reference(text)
		require.NoError(t, err)
		require.Equal(t, theirs, ours)
	}
}

// FuzzCanonical: what we accept the second implementation accepts, with the same bytes, unless a
// number in it was rounded.
func FuzzCanonical(f *testing.F) {
	for _, p := range pairs {
		f.Add(p.a)
		f.Add(p.b)
	}
	f.Fuzz(func(t *testing.T, text string) {
		ours, err := canonical(text)
		if err != nil {
			return
		}
		if theirs, err := reference(text); !rounds(text) && (err != nil || theirs != ours) {
			t.Fatalf("%q: ours %q, theirs %q, %v", text, ours, theirs, err)
		}
	})
}

// rounds reports whether a float64 does not hold a number of text.
func rounds(text string) bool {
	tokens := json.NewDecoder(strings.NewReader(text))
	tokens.UseNumber()
	for {
		token, err := tokens.Token()
		if err != nil {
			return false
		}
		number, is := token.(json.Number)
		if !is {
			continue
		}
		f, err := number.Float64()
		if _, exponent, _ := strings.Cut(strings.ToLower(number.String()), "e"); err != nil || len(exponent) > 4 {
			return true
		}
		exact, _ := new(big.Rat).SetString(number.String())
		held, _ := new(big.Rat).SetString(strconv.FormatFloat(f, 'e', -1, 64))
		if exact.Cmp(held) != 0 {
			return true
		}
	}
}
