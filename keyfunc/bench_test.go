package keyfunc_test

import (
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/httplatch/httplatch/keyfunc"
)

func benchmark(b *testing.B, f keyfunc.Func, r *http.Request) {
	b.Helper()
	b.ReportAllocs()
	for b.Loop() {
		if _, err := f(r); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkHeader(b *testing.B) {
	r := get("/")
	r.Header.Set("X-User-ID", "6f1c9a52-5b7e-4b0e-9d0a-0c8a3a9a7f11")
	benchmark(b, keyfunc.Header("X-User-ID"), r)
}

func BenchmarkPathValue(b *testing.B) {
	r := get("/")
	r.SetPathValue("id", "6f1c9a52-5b7e-4b0e-9d0a-0c8a3a9a7f11")
	benchmark(b, keyfunc.PathValue("id"), r)
}

func BenchmarkContext(b *testing.B) {
	benchmark(b, keyfunc.Context(func(context.Context) string { return "42" }), get("/"))
}

func BenchmarkQuery(b *testing.B) {
	benchmark(b, keyfunc.Query("id"), get("/?id=42&page=1"))
}

func BenchmarkJoin(b *testing.B) {
	r := get("/")
	r.Header.Set("X-Tenant", "acme")
	r.SetPathValue("id", "6f1c9a52-5b7e-4b0e-9d0a-0c8a3a9a7f11")
	benchmark(b, keyfunc.Join(keyfunc.Header("X-Tenant"), keyfunc.PathValue("id")), r)
}

func BenchmarkHash(b *testing.B) {
	benchmark(b, keyfunc.Hash(constant("6f1c9a52-5b7e-4b0e-9d0a-0c8a3a9a7f11")), get("/"))
}

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

func BenchmarkJSON(b *testing.B) {
	benchmarkBody(b, keyfunc.JSON("/customer/id"), "application/json", order)
}

func BenchmarkJSONLarge(b *testing.B) {
	body := `{"orders":[` + strings.Repeat(order+",", 1000) + order + `],"id":42}`
	benchmarkBody(b, keyfunc.JSON("/id"), "application/json", body)
}

func BenchmarkForm(b *testing.B) {
	benchmarkBody(b, keyfunc.Form("once"), urlencoded, "sku=A-1&quantity=2&note=please+ring&once=8c1f6f1c9a52")
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
