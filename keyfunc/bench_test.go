package keyfunc_test

import (
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/httplatch/httplatch/keyfunc"
)

// The body is read anew each time, as a request's is.
func benchmarkBody(b *testing.B, f keyfunc.Func, contentType, body string) {
	b.Helper()
	r := httptest.NewRequest(http.MethodPost, "/", nil)
	r.Header.Set("Content-Type", contentType)
	r.ContentLength = int64(len(body))
	src := strings.NewReader(body)
	b.SetBytes(int64(len(body)))
	b.ReportAllocs()
	for b.Loop() {
		src.Reset(body)
		r.Body = io.NopCloser(src)
		if _, err := f(r); err != nil {
			b.Fatal(err)
		}
	}
}

const order = `{"id":"ord_8c1f","customer":{"id":4711,"name":"Ann Lee"},"lines":[{"sku":"A-1","quantity":2},` +
	`{"sku":"B-7","quantity":1}],"currency":"EUR","total":"129.90","note":"please ring twice, second door"}`

func BenchmarkJSONLarge(b *testing.B) {
	body := `{"orders":[` + strings.Repeat(order+",", 1000) + order + `],"id":42}`
	benchmarkBody(b, keyfunc.JSON("/id"), "application/json", body)
}

// BenchmarkJSONFive is five pointers into 1 MiB of one body: a Join, a scope, a
// fingerprint.
func BenchmarkJSONFive(b *testing.B) {
	body := `{"a":1,"b":2,"c":3,"d":4,"orders":[` + strings.Repeat(order+",", 1<<20/(len(order)+1)-1) + order + `],"id":42}`
	benchmarkBody(b, keyfunc.Join(
		keyfunc.JSON("/a"), keyfunc.JSON("/b"), keyfunc.JSON("/c"), keyfunc.JSON("/d"), keyfunc.JSON("/id"),
	), "application/json", body)
}

// BenchmarkJSONMembers is a body of many small objects.
func BenchmarkJSONMembers(b *testing.B) {
	benchmarkBody(b, keyfunc.JSON("/0/id"), "application/json", "["+strings.Repeat(`{"id":1},`, 1<<20/9-2)+`{"id":1}]`)
}
