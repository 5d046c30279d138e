package integrations_test

import (
	"bytes"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/getkin/kin-openapi/openapi3"
	"github.com/getkin/kin-openapi/openapi3filter"
	"github.com/getkin/kin-openapi/routers/gorillamux"
	"github.com/stretchr/testify/require"

	"github.com/httplatch/httplatch/internal/testkit/guardtest"
	"github.com/httplatch/httplatch/internal/testkit/must"
	"github.com/httplatch/httplatch/keyfunc"
	"github.com/httplatch/httplatch/lock"
	"github.com/httplatch/httplatch/lock/memstore"
	latch "github.com/httplatch/httplatch/middleware"
)

// TestOpenAPI validates the document of docs/errors.md, and the answers of a guard by it.
func TestOpenAPI(t *testing.T) {
	t.Parallel()
	document := regexp.MustCompile("(?s)```yaml\n(openapi: .*?)```").FindSubmatch(must.Get(os.ReadFile("../errors.md"))(t))
	require.NotNil(t, document)
	components := must.Get(os.ReadFile("../openapi.yaml"))(t)
	dir := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(dir, "shop.yaml"), document[1], 0o600))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "openapi.yaml"), components, 0o600))
	loader := openapi3.NewLoader()
	loader.IsExternalRefsAllowed = true
	shop := must.Get(loader.LoadFromFile(filepath.Join(dir, "shop.yaml")))(t)
	require.NoError(t, shop.Validate(t.Context()))
	router := must.Get(gorillamux.NewRouter(shop))(t)

	l := newLocker(t, memstore.New(), lock.WithWait(0))
	once := latch.Idempotent(l, keyfunc.Global, keyfunc.IdempotencyKey, latch.WithBodyLimits(100, 100))
	var again func()
	h := once(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		if again != nil {
			again()
		}
		w.WriteHeader(http.StatusCreated)
	}))
	post := func(key, body string) (status int, valid error) {
		r := guardtest.KeyedBody(key, body)
		w := guardtest.Serve(h, r)
		route, params, err := router.FindRoute(r)
		require.NoError(t, err)
		in := &openapi3filter.RequestValidationInput{Request: r, PathParams: params, Route: route}
		out := &openapi3filter.ResponseValidationInput{RequestValidationInput: in, Status: w.Code, Header: w.Header(), Body: io.NopCloser(bytes.NewReader(w.Body.Bytes()))}
		out.Options = &openapi3filter.Options{IncludeResponseStatus: true}
		return w.Code, openapi3filter.ValidateResponse(t.Context(), out)
	}
	openapi3filter.RegisterBodyDecoder("application/problem+json", openapi3filter.JSONBodyDecoder)
	again = func() {
		again = nil
		status, err := post("k", "tea")
		require.Equal(t, 409, status)
		require.NoError(t, err)
	}
	for _, tt := range []struct {
		key, body string
		status    int
	}{
		{"k", "tea", 201},
		{"k", "tea", 201},
		{"k", "coffee", 422},
		{"", "tea", 400},
		{`"`, "tea", 400},
		{"k", strings.Repeat("x", 101), 413},
	} {
		status, err := post(tt.key, tt.body)
		require.Equal(t, tt.status, status)
		require.NoError(t, err)
	}
	require.NoError(t, l.Close(t.Context()))
	status, err := post("k2", "tea")
	require.Equal(t, 503, status)
	require.NoError(t, err)

	h = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { // the twin: another format
		(&latch.Problem{Status: 409, Type: "https://example.com/other", Title: "other"}).ServeHTTP(w, r)
	})
	_, err = post("k", "tea")
	require.Error(t, err)
}
