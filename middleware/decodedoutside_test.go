package middleware_test

import (
	"context"
	"encoding/json"
	"encoding/xml"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/iotest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/httplatch/httplatch/lock/memstore"
	latch "github.com/httplatch/httplatch/middleware"
)

type decodedKey struct{}

// TestBodyDecodedOutsideUpToItsLineEndIsRefused: a decoder stops after the value, so that the line
// end which most encoders write may be left. This rest does not identify the request, just like an
// empty rest. The place where a decoder stops depends on the size of its reads: a full buffer, or a
// chunk.
func TestBodyDecodedOutsideUpToItsLineEndIsRefused(t *testing.T) {
	t.Parallel()
	type order struct{ SKU, Pad string }
	fromJSON := func(body io.Reader, o *order) error { return json.NewDecoder(body).Decode(o) }
	fromXML := func(body io.Reader, o *order) error { return xml.NewDecoder(body).Decode(o) }
	tests := map[string]struct {
		decode            func(body io.Reader, o *order) error
		contentType, body string
		chunked           bool
	}{
		"JSON that fills the buffer": {fromJSON, "application/json", `{"sku":"SKU","pad":"` + strings.Repeat("x", 490) + "\"}\n", false},
		"the same without a type":    {fromJSON, "", `{"sku":"SKU","pad":"` + strings.Repeat("x", 490) + "\"}\n", false},
		"JSON in chunks":             {fromJSON, "application/json", `{"sku":"SKU"}` + "\r\n", true},
		"XML in chunks":              {fromXML, "text/xml; charset=utf-8", "<order><SKU>SKU</SKU></order>\n", true},
		"XML of a kind in chunks":    {fromXML, "application/soap+xml", "<order><SKU>SKU</SKU></order>", true},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			store := memstore.New()
			guard := latch.Dedupe(newLocker(t, store), byUser, time.Hour)
			next := guard(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				decoded, _ := r.Context().Value(decodedKey{}).(order)
				_, _ = io.WriteString(w, "ordered "+decoded.SKU)
			}))
			h := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				var o order
				if err := tt.decode(r.Body, &o); err != nil {
					t.Error(err)
				}
				next.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), decodedKey{}, o)))
			})
			submit := func(sku string) *httptest.ResponseRecorder {
				body := strings.Replace(tt.body, "SKU\"", sku+"\"", 1)
				body = strings.Replace(body, "SKU<", sku+"<", 1)
				r := typed(tt.contentType, body, tt.chunked)
				if tt.chunked { // the line end is a separate chunk
					value := strings.TrimRight(body, "\r\n")
					r.Body = io.NopCloser(io.MultiReader(strings.NewReader(value), iotest.OneByteReader(strings.NewReader(body[len(value):]))))
				}
				return serve(h, r)
			}
			for _, sku := range []string{"tea", "mug"} {
				answer := submit(sku)
				require.NotContains(t, answer.Body.String(), "ordered", "by what nothing tells from other orders")
				requireProblem(t, wantProblem{status: 500, kind: "body-consumed"}, answer)
			}
			requireEmpty(t, store)
		})
	}
}

// The twin: the client has sent white space.
func TestBlankBodyIsServed(t *testing.T) {
	t.Parallel()
	h := once(newLocker(t, memstore.New()))(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { _, _ = io.Copy(w, r.Body) }))
	for key, r := range map[string]*http.Request{
		"JSON":         typed("application/json", " \n", false),
		"chunked text": typed("text/plain", " \n", true),
	} {
		r.Header.Set("Idempotency-Key", strings.ReplaceAll(key, " ", "-"))
		answer := serve(h, r)
		require.Equal(t, 200, answer.Code, key)
		require.Equal(t, " \n", answer.Body.String(), key)
	}
}

// TestFormWithoutPartsParsedOutsideIsServed: the form of a script that sends only
// a path. It is parsed like any other form, and is not lost.
func TestFormWithoutPartsParsedOutsideIsServed(t *testing.T) {
	t.Parallel()
	for name, parse := range map[string]func(*http.Request) error{
		"parsed":        parseMultipart,
		"looked for":    func(r *http.Request) error { r.FormValue("_method"); return nil },
		"and by a copy": func(r *http.Request) error { err := parseMultipart(r); *r = *r.Clone(r.Context()); return err },
	} {
		for _, chunked := range []bool{false, true} {
			for _, body := range []string{"--b--\r\n", "\r\n--b--\r\n"} {
				t.Run(name, func(t *testing.T) {
					t.Parallel()
					form := func(path string) *http.Request {
						r := typed("multipart/form-data; boundary=b", body, chunked)
						r.URL.Path = path
						return r
					}
					l := newLocker(t, memstore.New())
					var e effects
					h := outside(t, parse, latch.Dedupe(l, byUser, time.Hour), e.answer)
					first := serve(h, form("/orders/1/pay"))
					require.Equal(t, 201, first.Code, first.Body)
					requireReplay(t, first, serve(h, form("/orders/1/pay")))
					require.Equal(t, 201, serve(h, form("/orders/2/pay")).Code)
					e.require(t, 2)
				})
			}
		}
	}
}
