package integrations_test

import (
	"math"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"testing"

	"github.com/gowebpki/jcs"
	"github.com/stretchr/testify/require"

	"github.com/httplatch/httplatch/internal/testkit/must"
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

// texts are bodies that clients send, and that attackers would, by what distinguishes them.
var texts = []string{
	// White space.
	`{}`, ` { } `, `[]`, "[\n]", `{"a":1}`, "{\t\"a\" :\r\n1 }", `[1,2]`, `[1 , 2]`, `"a b"`, `"a  b"`, `null`, ` null`,
	`true`, "true\n", `{"a":{"b":[1,{"c":2}]}}`, `{ "a" : { "b" : [ 1 , { "c" : 2 } ] } }`,
	// The order of names, and of nothing else.
	`{"a":1,"b":2}`, `{"b":2,"a":1}`, `{"b":1,"a":2}`, `{"a":{"x":1,"y":2},"b":3}`, `{"b":3,"a":{"y":2,"x":1}}`,
	`[2,1]`, `[{"a":1},{"b":2}]`, `[{"b":2},{"a":1}]`, `[{"a":1,"b":2}]`, `[{"b":2,"a":1}]`, `{"":1,"a":2}`,
	`{"a":2,"":1}`, `{"1":1,"10":2,"2":3}`, `{"10":2,"2":3,"1":1}`, `{"a":1,"A":2}`, `{"A":2,"a":1}`, `{"A":1,"a":2}`,
	`{"é":1,"z":2}`, `{"z":2,"é":1}`, `{"€":1,"\r":2,"דּ":3,"1":4,"😀":5,"\u0080":6,"ö":7}`,
	`{"ö":7,"😀":5,"1":4,"\u0080":6,"\r":2,"דּ":3,"€":1}`, `{"\ud83d\ude00":1,"\ufb33":2}`,
	"{\"\ufb33\":2,\"\U0001f600\":1}", `{"\ue000":1,"\ud800\udc00":2}`, "{\"\U00010000\":2,\"\ue000\":1}",
	`{"a":1,"aa":2,"aaa":3}`, `{"aaa":3,"aa":2,"a":1}`, `{"a\u0000":1,"a":2}`, `{"a":2,"a\u0000":1}`,
	// The spelling of numbers.
	`1`, `1.0`, `1e0`, `10e-1`, `0.1e1`, `1.000000000000000000000000`, `100`, `1e2`, `1E+2`, `1.00e02`, `0`, `-0`,
	`0.0`, `-0e5`, `0e-99999`, `-1`, `-1.0`, `1.5`, `15e-1`, `19.99`, `19.990`, `1999e-2`, `19.9`, `0.1`,
	`0.10000000000000000`, `1e-1`, `0.2`, `0.30000000000000004`, `0.3`, `0.000001`, `1e-6`, `0.0000001`, `1e-7`,
	`1e-07`, `1e20`, `100000000000000000000`, `1e21`, `1000000000000000000000`, `1e+21`, `123456789012345690000000`,
	`1.2345678901234569e23`, `1e100`, `10e99`, `1e101`, `1.7976931348623157e308`, `17976931348623157e292`, `5e-324`,
	`0.5e-323`, `2.2250738585072014e-308`, `22250738585072014e-324`, `9007199254740991`, `9007199254740991.0`,
	`9007199254740992`, `9.007199254740992e15`, `999999999999999900000`, `9999999999999999e5`, `333333333.3333333`,
	`3333333333333333e-7`, `4.50`, `4.5`, `2e-3`, `0.002`, `1.0000000000000002`,
	// Escapes in strings.
	`"a"`, `"\u0061"`, `"/"`, `"\/"`, `"é"`, `"\u00e9"`, `"\u00E9"`, "\"\u00e9\"", "\"e\u0301\"", `"😀"`,
	`"\ud83d\ude00"`, `"\n"`, `"\u000a"`, `"\u0007"`, `"\b\t\f\r"`, `"\u0008\u0009\u000c\u000d"`, `"\""`, `"\u0022"`,
	`"\\"`, `"\u005c"`, `"\\n"`, `"\\u0061"`, `"<script>&"`, `"\u003cscript\u003e\u0026"`, `"\u2028\u2029"`,
	"\"\u2028\u2029\"", `"\u007f"`, "\"\u007f\"", `{"\u0061":1}`, `{"a\/b":1}`, `{"a/b":1}`, `"A"`,
}

// TestCanonicalTexts: both implementations write the same bytes.
func TestCanonicalTexts(t *testing.T) {
	t.Parallel()
	for _, text := range texts {
		ours, err := canonical(text)
		require.NoError(t, err, text)
		theirs, err := reference(text)
		require.NoError(t, err, text)
		require.Equal(t, theirs, ours, text)
	}
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
		require.Equal(t, must.Get(reference(text))(t), must.Get(canonical(text))(t))
	}
}
