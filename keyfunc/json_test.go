package keyfunc_test

import (
	"encoding/json"
	"io"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/httplatch/httplatch/internal/testkit/must"
	"github.com/httplatch/httplatch/internal/testkit/parallel"
	"github.com/httplatch/httplatch/keyfunc"
)

var (
	notJSON   = refused(400, "keyfunc: JSON value /id cannot be read: the body is not exactly one JSON value in UTF-8")
	duplicate = refused(400, "two members of one name, or of names that differ only in case")
	notAKey   = refused(400, "keyfunc: JSON value /id is neither a string nor an integer")
	fraction  = refused(400, "with a fraction or an exponent")
	absent    = missing("is missing; send it in the body")
)

func TestJSON(t *testing.T) {
	t.Parallel()
	digits := strings.Repeat("9", 1024)
	for body, want := range map[string]outcome{
		" \t\r\n{ \"a\" : [ ] , \"id\" : 42 } \n":  key("42"),
		`{"a":{"id":1},"id":42,"b":[{"id":2},[]]}`: key("42"),
		`{"\u0069d":"4\u0032"}`:                    key("42"),
		`{"id":"a\"b\\c\/d"}`:                      key(`a"b\c/d`),
		`{"id":"]}\",{"}`:                          key(`]}",{`),
		`{"id":"Zo\u00eb"}`:                        key("Zoë"),
		`{"id":"\ud83d\ude00"}`:                    key("😀"),
		`{"id":"042"}`:                             key("042"),
		`{"id":-0}`:                                key("0"),
		`{"id":-42}`:                               key("-42"),
		`{"id":9007199254740993}`:                  key("9007199254740993"),
		`{"id":` + digits + `}`:                    key(digits),

		``:               absent,
		`{"a":1}`:        absent,
		`{"a":{"id":1}}`: absent,

		`{"id":1.0}`: fraction,
		`{"id":1e2}`: fraction,
		`{"id":1E2}`: fraction,

		`{"id":true}`: notAKey,
		`{"id":[42]}`: notAKey,

		`null`: refused(400, "cannot be reached"),
		`42`:   refused(400, "cannot be reached"),
		`[]`:   refused(400, "cannot be reached"),

		`{"id":1,"id":2}`:                      duplicate,
		`{"id":"s3cret","id":"s3cret"}`:        duplicate,
		`{"id":1,"\u0069d":2}`:                 duplicate,
		`{"id":1,"\u0049\u0044":2}`:            duplicate,
		`{"id":1,"x":{"s3cret":1,"S3CRET":2}}`: duplicate,
		`{"x":[{"a":1,"a":2}],"id":1}`:         duplicate,
		`{"id":1,"k":1,"` + "\u212a" + `":1}`:  duplicate, // Kelvin sign
		`{"id":1,"s":1,"\u017f":1}`:            duplicate, // long s
		`{"id":1,"\u03c3":1,"\u03c2":1}`:       duplicate, // the two small sigmas
		`{"id":1,"\ud800":1,"\udfff":1}`:       duplicate, // both are read as U+FFFD

		`{"Id":"s3cret","id":2}`: refused(400, "differ only in case"),
		`{"\u0130d":"s3cret"}`:   absent, // a dotted capital I is no i in any case

		`{"id":"s3cret\u0000"}`:                           refused(400, "control characters"),
		`{"id":"\u001fs3cret&7"}`:                         refused(400, "control characters"),
		`{"id":"s3cret\u007f"}`:                           refused(400, "control characters"),
		`{"id":"s3cret` + digits + `"}`:                   refused(400, "over 1024 bytes"),
		`{"id":1` + digits + `}`:                          refused(400, "over 1024 bytes"),
		`{"id":"` + strings.Repeat(`\u0078`, 1024) + `"}`: key(strings.Repeat("x", 1024)),

		"\ufeff" + `{"id":42}`:      notJSON, // byte order mark
		"\xff\xfe{\x00":             notJSON, // UTF-16
		`{"id":42}` + "\x00":        notJSON,
		`{"id":"42\`:                notJSON,
		`{"id":042}`:                notJSON,
		`{"id":42/**/}`:             notJSON,
		`{"id":"s3cret` + "\xff\"}": notJSON,
		`{"i` + "\xff" + `d":1}`:    notJSON,
		`{"id":"a` + "\n" + `b"}`:   notJSON,
		" ":                         notJSON,

		`{"id":1,"x":` + nested(63) + `}`:     key("1"),
		`{"id":1,"x":` + nested(64) + `}`:     refused(400, "over 64 levels"),
		`{"id":1,"x":` + nested(9_000) + `}`:  refused(400, "over 64 levels"),
		nested(10_000):                        refused(400, "64 levels deep"),
		`{"id":1,"x":` + nested(10_001) + `}`: notJSON,
		strings.Repeat("[", 1<<20):            notJSON,

		`{"id":42,"x":"` + strings.Repeat("x", 1<<20-16) + `"}`: key("42"),
		`{"id":42,"x":"` + strings.Repeat("x", 1<<20-15) + `"}`: refused(413, "keyfunc: JSON value /id cannot be read: the request body is too large"),
	} {
		parallel.Run(t, body[:min(24, len(body))], func(t *testing.T) {
			r := post("application/json", body)
			want.check(t, keyfunc.JSON("/id"), r)
			require.Equal(t, body, readAll(t, r.Body))
		})
	}
}

func nested(levels int) string { return strings.Repeat("[", levels) + strings.Repeat("]", levels) }

func TestJSONPointer(t *testing.T) {
	t.Parallel()
	const body = `{
		"order": {"id": 1, "lines": [{"sku": "a"}, {"sku": "b"}], "": "empty"},
		"a/b": 2, "m~n": 3, "~1": 4, "0": 5, "k": [[6, 7]], 
		"none": null, "text": "x"
	}`
	for pointer, want := range map[string]outcome{
		"/order/id":                 key("1"),
		"/order/lines/0/sku":        key("a"),
		"/order/":                   key("empty"),
		"/a~1b":                     key("2"),
		"/m~0n":                     key("3"),
		"/~01":                      key("4"),
		"/0":                        key("5"),
		"/k/0/1":                    key("7"),
		"/order/lines/2/sku":        absent,
		"/order/no":                 absent,
		"/":                         absent,
		"/order":                    refused(400, "neither a string nor an integer"),
		"/order/lines/0":            refused(400, "neither a string nor an integer"),
		"/order/lines/-/sku":        refused(400, "cannot be reached"),
		"/order/lines/01/sku":       refused(400, "cannot be reached"),
		"/order/lines/+1/sku":       refused(400, "cannot be reached"),
		"/order/lines/sku":          refused(400, "cannot be reached"),
		"/order/id/x":               refused(400, "cannot be reached"),
		"/none/x":                   refused(400, "cannot be reached"),
		"/Order/id":                 refused(400, "other capitals"),
		"/\u212a/0/1":               refused(400, "other capitals"),
		"/k/0/99999999999999999999": refused(400, "cannot be reached"),
	} {
		parallel.Run(t, pointer, func(t *testing.T) { want.check(t, keyfunc.JSON(pointer), post("application/json", body)) })
	}
}

// FuzzJSON compares the key with the value of a handler that decodes into a struct.
func FuzzJSON(f *testing.F) {
	for _, body := range []string{
		`{"id":42}`, `{"id":"42"}`, `{"id":-0}`, `{"id":9007199254740993}`, `{"\u0069d":"\ud83d\ude00"}`,
		`{"id":1,"ID":2}`, `{"ID":1}`, `{"iD":1,"id":1}`, `{"id":1,"id":2}`, `{"id":1} 2`, "\ufeff{}", `{"id":1.0}`,
		`{"a":{"b":1,"B":2}}`, `{"a":{"b":"x"},"A":{"b":"y"}}`, `{"a":{"b":"x"},"id":"y"}`,
		`{"k":[0,{"s":"z"}]}`, `{"` + "\u212a" + `":[0,{"s":"z"}]}`, `{"k":[0,{"\u017f":"z"}]}`, `{"k":[0,{"s":1}],"id":"\ud800"}`,
		`{"id":{}}`, `{"a":[]}`, `{"k":{}}`, `{"k":[]}`, `[]`, `null`, ``, `{"id":"\\\""}`, `{"id":"` + "\xff" + `"}`,
		`{"id":1,"x":` + nested(64) + `}`, `{"id":1,"x":` + nested(10) + `}`, " { } ", `{"id":1,}`, `{"":1,"id":2}`,
	} {
		f.Add([]byte(body))
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		var handler struct {
			ID any `json:"id"`
			A  struct {
				B any `json:"b"`
			} `json:"a"`
			K []json.RawMessage `json:"k"`
		}
		for pointer, decoded := range map[string]func() any{
			"/id":  func() any { return handler.ID },
			"/a/b": func() any { return handler.A.B },
			"/k/1/s": func() any {
				var element struct {
					S any `json:"s"`
				}
				decode(t, handler.K[1], &element)
				return element.S
			},
		} {
			k, err := keyfunc.JSON(pointer)(post("application/json", string(body)))
			if err != nil {
				require.Empty(t, k)
				continue
			}
			// Another member of the body may not suit the struct; encoding/json goes on behind it, and so may a handler.
			decode(t, body, &handler)
			switch seen := decoded().(type) {
			case string:
				require.Equal(t, seen, k)
			case json.Number:
				want := seen.String()
				if want == "-0" {
					want = "0"
				}
				require.Equal(t, want, k)
			default:
				t.Fatalf("%s: key %q, but the handler sees %#v", pointer, k, seen)
			}
		}
	})
}

func decode(t *testing.T, text []byte, into any) {
	t.Helper()
	d := json.NewDecoder(strings.NewReader(string(text)))
	d.UseNumber()
	var mismatch *json.UnmarshalTypeError
	if err := d.Decode(into); err != nil {
		require.ErrorAs(t, err, &mismatch)
	}
}

// A body is read as JSON where the handler reads it so, too.
func TestJSONByContentType(t *testing.T) {
	t.Parallel()
	other := refused(400, "keyfunc: JSON value /order_id cannot be read: the Content-Type is not that of JSON; send application/json")
	both := refused(400, "keyfunc: JSON value /order_id is in the query, too; send it in the body only, as application/json")
	for contentType, want := range map[string]outcome{
		"":                                  key("1"),
		"application/json":                  key("1"),
		"Application/JSON":                  key("1"),
		"application/vnd.api+json; ext=x":   key("1"),
		"text/plain;charset=UTF-8":          key("1"),
		"application/octet-stream":          key("1"),
		urlencoded:                          other,
		"application/X-WWW-form-urlencoded": other,
		urlencoded + "; =":                  other,
		" " + urlencoded + " ; a=b; a=c":    other,
		multiparts:                          other,
		"application/xml":                   other,
		"application/json, " + urlencoded:   other,
		"application/json x":                other,
		"application/xml +json":             other,
		"application/xml+json":              other,
		"text/xml+json":                     other,
		urlencoded + "+json":                other,
		multiparts + "+json":                other,
		"+json":                             other,
		"application/+json":                 other,
		"application/ld+json":               key("1"),
		secret:                              other,
	} {
		parallel.Run(t, contentType, func(t *testing.T) {
			r := post(contentType, `{"order_id":1}`)
			if contentType == "" {
				r.Header.Del("Content-Type")
			}
			want.check(t, keyfunc.JSON("/order_id"), r)
			for _, name := range []string{"order_id", "OrderID", "order-id", "%6frder_id"} {
				wanted := want
				if want.key != "" && !strings.HasPrefix(contentType, "application/json") {
					wanted = both
				}
				r.URL.RawQuery = "page=2&%zz&" + name + "=" + secret
				wanted.check(t, keyfunc.JSON("/order_id"), r)
			}
			if want.key != "" {
				r.URL.RawQuery = "page=2&order=7"
				want.check(t, keyfunc.JSON("/order_id"), r)
			}
		})
	}
	r := post("application/json", `{"order_id":1}`)
	r.Header.Add("Content-Type", urlencoded)
	refused(400, "the Content-Type is sent twice").check(t, keyfunc.JSON("/order_id"), r)
	r = post("application/json", `{"order_id":1}`) // gin reads the query of a GET with any type
	r.Method, r.URL.RawQuery = "GET", "order_id=7"
	both.check(t, keyfunc.JSON("/order_id"), r)
	r = post("application/json\t", `{"order_id":1}`) // gin does not know it
	r.URL.RawQuery = "order_id=7"
	both.check(t, keyfunc.JSON("/order_id"), r)
}

// TestJSONIsCheckedOnce: the functions of one request read its body and check it once, and
// another request, or a body that was put in its place, is checked again.
func TestJSONIsCheckedOnce(t *testing.T) {
	t.Parallel()
	body := `{"a":1,"list":[` + strings.Repeat(`{"id":1},`, 100_000) + `0]}`
	several := keyfunc.Join(keyfunc.JSON("/a"), keyfunc.JSON("/list/100000"), keyfunc.JSON("/list/99999/id"))
	one := post("application/json", body)
	for range 3 {
		key("\x1f1&0&1").check(t, several, one)
	}
	require.NoError(t, json.Unmarshal([]byte(readAll(t, one.Body)), new(map[string]any)), "the handler gets it")

	twin := `{"a":1,"x":{"b":1,"B":2}}`
	for range 2 {
		r := post("application/json", twin)
		for range 3 {
			refused(400, "differ only in case").check(t, several, r)
		}
		r.Body = io.NopCloser(strings.NewReader(body))
		r.ContentLength = int64(len(body))
		require.NotEmpty(t, must.Get(several(r))(t))
		r.Body = io.NopCloser(strings.NewReader(twin))
		refused(400, "differ only in case").check(t, several, r)
	}
}
