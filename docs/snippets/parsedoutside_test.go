package snippets_test

import (
	"bytes"
	"io"
	"maps"
	"mime/multipart"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/gorilla/handlers"
	"github.com/justinas/nosurf"
	"github.com/stretchr/testify/require"

	"github.com/httplatch/httplatch/internal/testkit/redistest"
	"github.com/httplatch/httplatch/keyfunc"
	"github.com/httplatch/httplatch/lock"
	"github.com/httplatch/httplatch/lock/memstore"
	"github.com/httplatch/httplatch/lock/redisstore"
	latch "github.com/httplatch/httplatch/middleware"
)

// page is a form as a browser has got it, with what its middleware wants back.
type page struct {
	cookies []*http.Cookie
	token   string
}

// submit sends a form of the page. Each multipart one has its own boundary.
func (p page) submit(t *testing.T, srv *httptest.Server, multi bool, fields url.Values) (status int, body string, replayed bool) {
	t.Helper()
	if p.token != "" {
		fields.Set(nosurf.FormFieldName, p.token)
	}
	contentType, form := "application/x-www-form-urlencoded", fields.Encode()
	if multi {
		var b bytes.Buffer
		w := multipart.NewWriter(&b)
		for name := range fields {
			require.NoError(t, w.WriteField(name, fields.Get(name)))
		}
		require.NoError(t, w.Close())
		contentType, form = w.FormDataContentType(), b.String()
	}
	r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, srv.URL+"/orders", strings.NewReader(form))
	require.NoError(t, err)
	r.Header.Set("Content-Type", contentType)
	r.Header.Set("Sec-Fetch-Site", "same-origin")
	r.Header.Set("X-User-ID", "42")
	for _, c := range p.cookies {
		r.AddCookie(c)
	}
	res, err := srv.Client().Do(r)
	require.NoError(t, err)
	defer func() { require.NoError(t, res.Body.Close()) }()
	answer, err := io.ReadAll(res.Body)
	require.NoError(t, err)
	return res.StatusCode, string(answer), res.Header.Get("Idempotent-Replayed") == "true"
}

// TestFormsParsedByRealMiddlewaresOutside: nosurf reads its token out of the
// form and HTTPMethodOverrideHandler the method, so that a guard inside finds
// no body. It finds the form, and distinguishes tea from coffee.
func TestFormsParsedByRealMiddlewaresOutside(t *testing.T) {
	t.Parallel()
	redis, err := redisstore.Open(t.Context(), redistest.Start(t).URL())
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, redis.Close()) })
	stores := map[string]lock.Store{"memory": memstore.New(), "redis": redis}
	outside := map[string]struct {
		wrap   func(http.Handler) http.Handler
		fields url.Values
		order  string // what the handler says of it
	}{
		"nosurf":                    {nosurf.NewPure, nil, "POST ordered "},
		"HTTPMethodOverrideHandler": {handlers.HTTPMethodOverrideHandler, url.Values{"_method": {"PUT"}}, "PUT ordered "},
	}
	for storeName, store := range stores {
		for name, tt := range outside {
			for _, multi := range []bool{false, true} {
				for _, dedupe := range []bool{false, true} {
					l := lock.New(store)
					byUser := keyfunc.Join(keyfunc.Header("X-User-ID"), func(*http.Request) (string, error) { return t.Name(), nil })
					guard := latch.Idempotent(l, byUser, keyfunc.Form("once"))
					if dedupe {
						guard = latch.Dedupe(l, byUser, time.Hour)
					}
					title := strings.Join([]string{name, storeName, map[bool]string{true: "multipart", false: "urlencoded"}[multi], map[bool]string{true: "Dedupe", false: "Idempotent"}[dedupe]}, " ")
					t.Run(title, func(t *testing.T) {
						effects := 0
						srv := httptest.NewTLSServer(tt.wrap(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
							if r.Method == http.MethodGet {
								_, _ = io.WriteString(w, nosurf.Token(r))
								return
							}
							guard(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
								effects++
								_, _ = io.WriteString(w, r.Method+" ordered "+r.PostFormValue("sku"))
							})).ServeHTTP(w, r)
						})))
						defer srv.Close()
						p := open(t, srv)
						fields := func(once, sku string) url.Values {
							f := url.Values{"once": {once + title}, "sku": {sku}}
							maps.Copy(f, tt.fields)
							return f
						}

						_, tea, replayed := p.submit(t, srv, multi, fields("1", "tea"))
						require.Equal(t, tt.order+"tea", tea)
						require.False(t, replayed)
						_, tea, replayed = p.submit(t, srv, multi, fields("1", "tea"))
						require.Equal(t, tt.order+"tea", tea)
						require.True(t, replayed)
						require.Equal(t, 1, effects)

						status, coffee, replayed := p.submit(t, srv, multi, fields("1", "coffee"))
						require.False(t, replayed, coffee)
						if !dedupe {
							require.Equal(t, 422, status, coffee)
							_, coffee, _ = p.submit(t, srv, multi, fields("2", "coffee"))
						}
						require.Equal(t, tt.order+"coffee", coffee)
						require.Equal(t, 2, effects)
					})
				}
			}
		}
	}
}

// open gets the page, with a token if there is one to send back.
func open(t *testing.T, srv *httptest.Server) page {
	t.Helper()
	res, err := srv.Client().Get(srv.URL)
	require.NoError(t, err)
	defer func() { require.NoError(t, res.Body.Close()) }()
	token, err := io.ReadAll(res.Body)
	require.NoError(t, err)
	return page{res.Cookies(), string(token)}
}
