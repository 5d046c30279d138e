package keyfunc_test

import (
	"io"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/httplatch/httplatch/internal/testkit/parallel"
	"github.com/httplatch/httplatch/keyfunc"
)

func TestQuery(t *testing.T) {
	t.Parallel()
	for query, want := range map[string]outcome{
		"i%64=4%32":                        key("42"),
		"id=a+b":                           key("a b"),
		"id=a%26b":                         key("a&b"),
		"ID=1&id=42":                       key("42"),
		"":                                 missing("keyfunc: query parameter id is missing; send it in the URL"),
		"id=":                              missing("query parameter id"),
		"id=" + secret + "&id=2":           refused(400, "keyfunc: query parameter id is sent twice; send it once"),
		"id=" + secret + "&%69d=" + secret: refused(400, "sent twice"),
		"id=" + secret + ";x=1":            refused(400, "does not parse"),
		"id=42&x=" + secret + "%zz":        refused(400, "does not parse"),
		"id=" + secret + "%0A":             refused(400, "control characters"),
		"id=%1F" + secret + "%26b":         refused(400, "control characters"),
		"id=" + secret + strings.Repeat("x", 1024): refused(400, "over 1024 bytes"),
		"id=" + strings.Repeat("%78", 1024):        key(strings.Repeat("x", 1024)),
	} {
		parallel.Run(t, query[:min(20, len(query))], func(t *testing.T) {
			r := get("/orders")
			r.URL.RawQuery = query
			want.check(t, keyfunc.Query("id"), r)
		})
	}
}

// A form in the body may have the parameter as well, and r.FormValue reads it there.
func TestQueryAndTheBody(t *testing.T) {
	t.Parallel()
	large := "x=" + strings.Repeat("y", 1<<20)
	both := refused(400, "keyfunc: query parameter id is in the form, too; send it in the URL only")
	for name, tt := range map[string]struct {
		method, contentType, body string
		want                      outcome
	}{
		"a form":                        {"POST", urlencoded, "a=b", key("42")},
		"a form that has it":            {"POST", urlencoded, "id=7", both},
		"with the same value":           {"PUT", urlencoded, "a=b&i%64=42", both},
		"empty":                         {"PATCH", urlencoded, "id", both},
		"in a form that does not parse": {"POST", urlencoded, "%zz&id=7;&id=" + secret, both},
		"type with a bad parameter":     {"POST", urlencoded + "; =", "id=7", both},
		"another case":                  {"POST", urlencoded, "ID=7", key("42")},
		"no body":                       {"POST", urlencoded, "", key("42")},
		"a method without a form":       {"DELETE", urlencoded, "id=7", key("42")},
		"a form over the limit":         {"POST", urlencoded, large, refused(413, "too large")},
		"multipart":                     {"POST", multiparts, multipartBody(t, part{"id", "", "7"}), key("42")},
		"no form":                       {"POST", "application/json", `{"id":7}`, key("42")},
	} {
		parallel.Run(t, name, func(t *testing.T) {
			r := httptest.NewRequest(tt.method, "/pay?id=42", strings.NewReader(tt.body))
			r.Header.Set("Content-Type", tt.contentType)
			tt.want.check(t, keyfunc.Query("id"), r)
			if tt.want.key == "" {
				return
			}
			require.Nil(t, r.Form)
			clone := *r
			body := readAll(t, r.Body)
			require.Equal(t, tt.body, body, "the handler gets it")
			clone.Body = io.NopCloser(strings.NewReader(body))
			require.Equal(t, tt.want.key, clone.FormValue("id"))
		})
	}

	// Parsed outside, and read outside.
	r := post(urlencoded, "id=7")
	r.URL.RawQuery = "id=42"
	require.NoError(t, r.ParseForm())
	both.check(t, keyfunc.Query("id"), r)
	r = post(urlencoded, "id=7")
	r.URL.RawQuery = "id=42"
	_ = readAll(t, r.Body)
	key("42").check(t, keyfunc.Query("id"), r)
	require.Equal(t, "42", r.FormValue("id"))
}
